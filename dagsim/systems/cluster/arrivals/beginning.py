"""The jobs in the system when a simulation begins in the middle of a log or at a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from dagsim.model import Cluster
from dagsim.model.arithmetic import whole_sum
from dagsim.workload.arrays import JobArrays

_NAMED = 3
"""Maximum number of unknown nodes that a message names."""


@dataclass(frozen=True, slots=True)
class JobsAtBeginning:
    """Numbers of jobs at the beginning of a simulation."""

    begins_s: float
    running: int
    waiting: int
    without_room: int
    """Waiting jobs that ran in the log but did not fit."""
    elsewhere: int
    """Jobs that ran on nodes missing from the cluster."""
    unplaced: int
    """Running jobs whose nodes are unknown."""
    unknown_nodes: list[str]
    """The first few of the missing nodes."""

    @classmethod
    def of(cls, arrays: JobArrays, cluster: Cluster) -> JobsAtBeginning:
        """Count the jobs that arrived before the beginning."""
        begins_s = arrays.begins_s
        early = int(np.searchsorted(arrays.arrival_s, begins_s))
        in_flight = [()] * early if arrays.in_flight is None else arrays.in_flight.tolist()[:early]
        running = [bool(runs) for runs in in_flight]
        start_s = np.full(early, nan) if arrays.observed_start_s is None else arrays.observed_start_s[:early]
        there = {node.name.partition(":")[0] for node in cluster.nodes}
        named = [()] * early if arrays.observed_nodes is None else arrays.observed_nodes.tolist()[:early]
        missing = [
            [name for name in names if name not in there]
            for names, start in zip(named, start_s.tolist(), strict=True)
            if start < begins_s
        ]
        return cls(
            begins_s=begins_s,
            running=whole_sum(running),
            waiting=early - whole_sum(running),
            without_room=int(((start_s < begins_s) & ~np.array(running, bool)).sum()),
            elsewhere=len(list(filter(None, missing))),
            unplaced=whole_sum(runs and not names for runs, names in zip(running, named, strict=True)),
            unknown_nodes=list(dict.fromkeys(name for names in missing for name in names))[:_NAMED],
        )
