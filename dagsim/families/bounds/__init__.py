"""Proven lower bounds on the sum of completion times (docs/reference/bound.md)."""
