"""Small worked examples, run through the kernel; the samples, and a trace read to its end."""

from support.policy_runs import dag, ends, order, rows, run
from support.trace_reading import read, samples

__all__ = ["dag", "ends", "order", "read", "rows", "run", "samples"]
