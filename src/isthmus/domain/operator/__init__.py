"""Decisions of the operator, and the objects and files that it renders."""
