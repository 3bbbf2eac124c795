"""Caches of both worlds, and the look-ups between them."""
