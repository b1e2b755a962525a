"""Proven lower bounds of the sum of completion times (docs/reference/bound.md)."""
