"""Decisions and the small languages they are written in: pure, synchronous, without clock or I/O."""
