"""Every label, annotation, reason and metric name that Isthmus puts into the world, a sentence each."""
