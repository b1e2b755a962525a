"""One run of one trace under two policies, compared over a few blocks of its jobs."""

from __future__ import annotations

import numpy as np

from dagsim.errors import InputError
from dagsim.experiment.folder import RunFolder
from dagsim.metrics import OverTime, columns, jct, over_time
from dagsim.metrics.columns import Floats

__all__ = ["block_ratios"]


def block_ratios(folder: RunFolder, policy: str, reference: str, blocks: int) -> OverTime:
    """The ratio of completion times over ``blocks`` blocks of jobs by arrival. The first run of each policy counts.

    Raises:
        InputError: A job did not complete under one of them, or what ``over_time`` refuses.
    """
    return over_time(_jcts(folder, policy), _jcts(folder, reference), blocks)


def _jcts(folder: RunFolder, policy: str) -> Floats:
    """Completion times of the jobs that were let in, in order of arrival."""
    number = next(place for place, line in enumerate(folder.lines()) if line.policy == policy)
    made = columns(folder.schedule(number))
    if made.jobs.unfinished.any():
        raise InputError(f"blocks: {policy} left {int(made.jobs.unfinished.sum())} jobs unfinished")
    let_in = made.jobs.accepted
    order = np.argsort(made.jobs.arrival_s[let_in], kind="stable")
    found: Floats = jct(made)[let_in][order]
    return found
