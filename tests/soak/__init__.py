"""What takes too long for every change, on the whole local cluster: `make soak`."""
