"""What the objects of Kubernetes mean to both products."""
