"""Deadlines: which were met, and by how much the others were missed."""

from __future__ import annotations

import numpy as np

from dagsim.metrics.columns import Floats, Source, columns

__all__ = ["slo_attainment", "tardiness"]


def slo_attainment(source: Source) -> float:
    """Jobs that completed by their deadline / jobs that have one; a rejected job has missed it. NaN if no job has one.

    An unfinished job has missed its deadline if that has passed, and is left out if not.
    """
    made = columns(source)
    jobs = made.jobs
    decided = ~np.isnan(jobs.deadline_s) & ~(jobs.unfinished & (jobs.deadline_s >= made.log_end_s))
    met = jobs.completed_s[decided] <= jobs.deadline_s[decided]
    return float(met.mean()) if len(met) else float("nan")


def tardiness(source: Source) -> Floats:
    """Per job max(0, completed - deadline) in s; NaN without a deadline, or where rejected or unfinished."""
    jobs = columns(source).jobs
    return np.maximum(jobs.completed_s - jobs.deadline_s, 0.0)
