"""What the processes of the bridge share: caches of both worlds, and the look-ups between them."""
