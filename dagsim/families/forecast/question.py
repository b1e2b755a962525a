"""Read a snapshot of a queue with its history, note what is doubtful in it, and ask for forecasts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import NotRecognised, TraceError
from dagsim.experiment.simulate import make_policy
from dagsim.families.forecast.futures import Player, policy_of
from dagsim.families.forecast.job_log import JobLog, read_job_log, read_snapshot
from dagsim.families.forecast.live import (
    EarlierForecasts,
    Expected,
    ExpectedShape,
    IsDue,
    ListedById,
    Prospect,
    expected,
    expected_shapes,
)
from dagsim.families.forecast.members import Forecaster
from dagsim.families.forecast.planned_jobs import PlannedJob
from dagsim.families.forecast.queue_rows import read_reasons
from dagsim.families.forecast.reasons import UNLISTED, Fate, is_limit, verdict_of
from dagsim.model import Cluster, QueueTree
from dagsim.spelling import nearest_file
from dagsim.systems.cluster.past.recall import forgotten
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of
from dagsim.systems.seam import stated
from dagsim.text import count_of, on_one_line
from dagsim.traces import TraceOptions, format_of
from dagsim.traces.documents import elements
from dagsim.traces.source import Source
from dagsim.workload.accept import accepting
from dagsim.workload.records import clipped


class Question(NamedTuple):
    """A snapshot from which to forecast, read together with its history."""

    log: JobLog
    forecaster: Forecaster
    t: float
    listing: ListedById | None
    scenario: ClusterScenario
    remarks: list[str]

    @classmethod
    def read(
        cls, config: Config, state: Path, history: Path | None, policy: str | None, futures: int, arrivals: int
    ) -> Question:
        """Read the snapshot that is the workload of the configuration.

        Raises:
            InputError: The file is not a snapshot, or does not match the cluster in the
                configuration.
        """
        scenario, file = cluster_scenario_of(config), config.trace()
        trace = file.open(scenario.cluster, scenario.runtime)
        log, t = read_snapshot(trace)
        listing = read_reasons(trace)
        played_by = policy or policy_of(config)
        decider = make_policy(scenario, played_by, 0)
        without_limits = played_by if stated(decider, "wait_rules") is None else ""
        remarks = _remarks(log, scenario.cluster) + _doubtful_reasons(listing, scenario.queues, without_limits)
        if later := int(np.count_nonzero(log.submit_s > t)):
            remarks.append(f"left out: {count_of(later, 'job')} submitted after the time of the snapshot")
        if trace.report.dropped:
            remarks.append(str(trace.report))
        if history is not None:
            log = log.beside(_history(history, file.options, _stamp(history)), t)
        log = replace(log, jobs=accepting(log.jobs, scenario.accept, scenario.runtime, scenario.cluster.gpu_types))
        remarks.append(f"the futures are simulated under {played_by}{_unknown(decider, history is not None)}")
        forecaster = Forecaster(Player(scenario, played_by, log), futures, arrivals, config.seed, baselines=False)
        return cls(log, forecaster, t, listing or None, scenario, remarks)

    def with_baselines(self) -> Question:
        """Return the same question with answers that also contain the medians of simple forecasts."""
        return self._replace(forecaster=replace(self.forecaster, baselines=True))

    def answers(
        self, jobs: Collection[str] = (), early: IsDue | None = None, kept: EarlierForecasts | None = None
    ) -> Iterator[Prospect[Expected]]:
        """Yield increasingly accurate forecasts for the waiting jobs (``expected``)."""
        return expected(self.log, self.forecaster, self.t, listing=self.listing, jobs=jobs, early=early, kept=kept)

    def shapes(self, shapes: Sequence[PlannedJob], early: IsDue | None = None) -> Iterator[Prospect[ExpectedShape]]:
        """Yield increasingly accurate forecasts for planned jobs (``expected_shapes``)."""
        cluster, listing = self.scenario.cluster, self.listing
        return expected_shapes(self.log, self.forecaster, self.t, shapes, cluster, listing=listing, early=early)


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the name, the modification time and the size of a file, or of each file in a
    folder."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    try:
        return tuple((file.name, facts.st_mtime_ns, facts.st_size) for file in files for facts in [file.stat()])
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file or folder{nearest_file(path)}") from None


@lru_cache(maxsize=1)
def _history(path: Path, options: TraceOptions, stamp: tuple[tuple[str, int, int], ...]) -> JobLog:
    """Read accounting records. The result is cached, and read again only if the files have changed."""
    log = read_job_log(path, options)
    assert log is not None
    return log


def is_idle(state: Path) -> bool:
    """Return True for a Slurm snapshot in which nothing is running or waiting, so that there is no
    job to read.
    """
    if state.is_dir():
        return False
    source = Source(state)
    head = "\n".join(source.head(1 << 16)).lstrip()
    return head.startswith("{") and _IDLE.search(head) is not None and not any(elements(source, "jobs"))


_IDLE = re.compile(r'"jobs"\s*:\s*\[\s*\]')


def workload_of(state: Path) -> dict[str, str]:
    """Return the workload section for a snapshot.

    Raises:
        TraceError: The file cannot be read, or is not in a known format.
    """
    workload = {"kind": "trace", "path": str(state)}
    try:
        named = format_of(state, TraceOptions())
    except NotRecognised:
        raise TraceError(
            f"{state}: not a complete snapshot of a queue; give the output of squeue --json or kubectl "
            "get pods -o json, and write it to another file first, which you rename when it is complete"
        ) from None
    return workload | ({"format": "kubernetes-now"} if named == "kubernetes" else {})


def _unknown(policy: object, has_history: bool) -> str:
    """Return the end of a sentence that lists the facts from before the snapshot that the policy
    needs but does not have."""
    unknown = forgotten(policy)
    if not has_history and (remembers := stated(policy, "remembers")):
        unknown.append(f"{remembers} (--history provides it)")
    return f"; the snapshot does not show {', or '.join(unknown)}" if unknown else ""


def _remarks(log: JobLog, cluster: Cluster) -> list[str]:
    """Return remarks on a snapshot: nodes that do not exist, and limits that the site does not
    have."""
    names = {name for names in log.nodes.words for name in names}
    unknown = sorted(names - {node.name for node in cluster.nodes})
    remarks = []
    if 2 * len(unknown) > len(names):
        remarks.append(
            f"jobs run on {count_of(len(names), 'node')}, of which the cluster of the configuration "
            f"lacks {len(unknown):,}, "
            f"such as {unknown[0]}. Is it another cluster? These jobs are placed by best fit"
        )
    return remarks


def _doubtful_reasons(listing: ListedById, queues: QueueTree | None, without_limits: str) -> list[str]:
    """Return remarks on jobs with doubtful reasons: a kind of limit that the configuration lacks or
    that the policy does not apply, or a reason that dagsim does not recognise. ``without_limits``
    is the policy if it applies no limits.
    """
    tree = queues or QueueTree()
    nodes = [node for node, _ in tree.walk()]
    there = {
        "QOS": any(qos.limits or qos.user_limits or qos.account_limits for qos in tree.qos),
        "Assoc": any(node.limits or node.user_limits or node.limits_of for node in nodes),
        "quota": tree.has_quota,
    }
    remarks = []
    for kind, has_limits in there.items():
        reasons = [job.reason for job in listing.values() if job.reason.startswith(kind) and is_limit(job.reason)]
        reasons = [reason for reason in reasons if verdict_of(reason).fate is Fate.KNOWN]
        if reasons and (without_limits or not has_limits):
            lacking = f"{without_limits} applies no limits" if has_limits else "the configuration has no such limit"
            remarks.append(
                f"{count_of(len(reasons), 'job waits', 'jobs wait')} for a limit such as {reasons[0]}, but "
                f"{lacking}, so the forecasts are too early"
            )
    unlisted = [job.reason for job in listing.values() if verdict_of(job.reason) is UNLISTED]
    if unlisted:
        remarks.append(
            f"warning: {count_of(len(unlisted), 'job waits', 'jobs wait')} for reasons that dagsim does not list, "
            "such as "
            f"{clipped(on_one_line(unlisted[0]))!r}: the forecasts assume that only resources and rules keep them "
            "waiting"
        )
    return remarks
