"""Fairness: Jain's index, and finish-time fairness against an isolated share of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from dagsim.metrics.columns import Floats, Source, columns, total
from dagsim.metrics.jct import jct
from dagsim.metrics.steps import present
from dagsim.model.arithmetic import numbered

__all__ = ["finish_time_fairness", "isolated_s", "jain", "tenant_gpu_seconds", "unfair_share"]


def jain(values: Iterable[float]) -> float:
    """Jain's index (sum x)^2 / (n sum x^2) (Jain, Chiu & Hawe 1984).

    1 if all values are equal, even if all are 0; 1/n if all but one are 0; NaN without values.
    """
    x = np.fromiter(values, float)
    if not len(x):
        return float("nan")
    most = float(x.max())
    if not most:
        return 1.0
    x = x / most  # avoids overflow: no square is above 1
    return float(x.sum()) ** 2 / (len(x) * float(x @ x))


def tenant_gpu_seconds(source: Source) -> dict[str, float]:
    """GPU-seconds held by each tenant with an accepted job, in order of first arrival."""
    cols = columns(source)
    per_job = total(cols.runs.job, cols.runs.gpu_s, len(cols.jobs))
    place, tenants = numbered(cols.jobs.tenant)
    accepted = cols.jobs.accepted
    place, gpu_s = place[accepted], total(place[accepted], per_job[accepted], len(tenants)).tolist()
    return {tenants[index]: gpu_s[index] for index in dict.fromkeys(place.tolist())}


def isolated_s(source: Source, contention: float | Literal["lifetime"] = "lifetime") -> Floats:
    """Time that each job would take alone on 1/N of the cluster: max(ideal time, ideal GPU-seconds
    x N / GPUs).

    ``contention`` sets N:

    - ``"lifetime"``: the time average of the jobs in the system while the job was in it, as in Themis
      (NSDI 2020) and Shockwave (NSDI 2023).
    - A number: this N for every job (a static partition, such as the number of tenants).

    The ideal times are those of the fastest allowed GPU type, so on a mixed cluster this is a lower
    bound.
    """
    cols = columns(source)
    jobs = cols.jobs
    if contention == "lifetime":
        count, jct_s = present(cols, 0.0, cols.log_end_s), jct(cols)
        together = count.until(jobs.completed_s) - count.until(jobs.arrival_s)
        share = np.divide(together, jct_s, out=np.ones(len(jobs)), where=jct_s > 0)
    else:
        share = np.full(len(jobs), float(contention))
    return np.maximum(jobs.ideal_s, jobs.ideal_gpu_s * share / max(cols.cluster.gpus, 1))


def finish_time_fairness(source: Source, contention: float | Literal["lifetime"] = "lifetime") -> Floats:
    """Finish-time fairness rho = JCT / ``isolated_s`` per job. Above 1, the job's own share would
    have been better.

    Systems differ in N and in the time alone; this is the variant of ``isolated_s``. NaN if
    rejected or unfinished.
    """
    alone_s, jct_s = isolated_s(source, contention), jct(source)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((jct_s == 0) & (alone_s == 0), 1.0, jct_s / alone_s)


def unfair_share(rho: Floats) -> float:
    """Fraction of jobs with rho above 1 (by more than rounding); NaN if any value is NaN or there
    are no jobs.
    """
    if not len(rho) or np.isnan(rho).any():
        return float("nan")
    return float(np.mean(rho > 1 + 1e-9))
