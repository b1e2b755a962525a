"""Small worked examples, run through the kernel."""

from policy_runs import dag, ends, order, rows, run

__all__ = ["dag", "ends", "order", "rows", "run"]
