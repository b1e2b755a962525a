"""Small worked examples, run through the kernel."""

from support.policy_runs import dag, ends, order, rows, run

__all__ = ["dag", "ends", "order", "rows", "run"]
