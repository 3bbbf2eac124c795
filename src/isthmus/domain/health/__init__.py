"""Decisions about the health of nodes: what was found, what is done about it, and when a node may return."""
