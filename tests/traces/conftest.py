"""The samples, and a trace read to its end."""

from support.trace_reading import read, samples

__all__ = ["read", "samples"]
