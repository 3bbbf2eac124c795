"""The shared root from inside a pod that mounts it: filling it, and writing files onto it."""
