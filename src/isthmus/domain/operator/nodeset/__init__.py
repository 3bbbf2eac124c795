"""What is decided about the worker nodes of a NodeSet."""
