"""Decisions about elastic nodes: what may be on, what is started and released, and what that would have cost."""
