"""Decisions of the bridge."""
