"""A real run of Slurm against what is made of its log: accounting, priorities, starts.

    python scripts/validate_slurm.py --run DIR [--json]

DIR is a folder with ``sacct-aDX.txt`` (docs/reference/traces.md has the command). The priorities need ``slurm.conf``,
``sshare.txt``, ``sacctmgr-assoc.txt``, ``sacctmgr-qos.txt``, ``scontrol-show-nodes.txt``, ``slurmctld-priority.log``
(DebugFlags=Priority) and ``golden_priorities.csv``; the starts need ``golden_starts.csv``.

- accounting: ``jobs`` that ran, their ``attempts`` (rows with an allocation), ``attempt_gpu_seconds`` (GPUs as Slurm
  counts them x seconds that ran, of all attempts), and rows that ``never_ran``.
- priorities: ``worst_factor`` is the largest difference of any factor but classic fair share, whose is in
  ``worst_classic_fair_share`` (slurmctld takes account usage from its last round, the documentation does not say so);
  ``wrong_totals`` are priorities that differ after truncation. A total takes classic fair share from the log.
- starts: the jobs of the run submitted again to the policy ``slurm-multifactor`` on the run's nodes, with the run's
  partitions and SchedulerParameters, under both rules for a limit that ends just when a reservation begins, with nodes
  free 0, 0.5 or 1 s after the end of a job (0 and 1 were measured), with a main loop at every event or at most every
  2 s (sched_min_interval; both fit some run), and, where backfill runs less often than every second, at the
  instants at which Flags says that it started most jobs; where it runs every second, its cycles take no time. The
  figures are those of the variant that comes nearest.
  ``order_differs`` counts the jobs that had to be moved for the same order of starts (of one second any order is the
  same), ``worst_gap_s`` is the largest difference of a start, ``median_gap_s`` the usual one; ``other_scheduler`` jobs
  were started by the main loop here and by backfill there, or the other way round.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import command

from dagsim.errors import TraceError
from dagsim.families.site.node_lists import FoundNode
from dagsim.families.site.site_import import site_files
from dagsim.families.slurm.accounting.accounting_rows import COLUMNS, sacct_rows
from dagsim.families.slurm.accounting.accounting_values import array_tasks, resources
from dagsim.families.slurm.scheduler.multifactor import SlurmMultifactor
from dagsim.families.slurm.scheduler.priority_formulas import Factors, truncated
from dagsim.families.slurm.scheduler.slurm_priority import Asked, Capacity, PriorityBook
from dagsim.families.slurm.scheduler.slurm_settings import SlurmSettings
from dagsim.families.slurm.site.scheduler_parameters import scheduler_of
from dagsim.families.slurm.site.slurm_site import SlurmSite
from dagsim.families.slurm.site.slurm_site_files import read_slurm_site
from dagsim.model import Cluster, Decision, GpuType, Job, Kind, Node, Start, Task, TaskGraph
from dagsim.systems.cluster import ClusterView
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.times import duration_s

_SLACK = 0.01
"""Tolerance: the log has two digits of a total, and six of a factor that is taken from it."""


def accounting(folder: Path) -> dict[str, Any]:
    """Count the log's contents, before any job is dropped."""
    jobs: set[str] = set()
    attempts, gpu_seconds, never_ran = 0, 0.0, 0
    for _, row in sacct_rows(Source(folder / "sacct-aDX.txt"), ReadReport(), None):
        fields = dict(zip(COLUMNS, row, strict=True))
        if "." in fields["JobID"].partition("[")[0]:
            continue  # a step
        amounts = resources(fields["AllocTRES"])
        if not amounts.is_stated:
            never_ran += array_tasks(fields["JobID"]) or 1
            continue
        jobs.add(fields["JobID"])
        attempts += 1
        gpu_seconds += amounts.gpus * (duration_s(fields["ElapsedRaw"], "ElapsedRaw") or 0.0)
    return {"jobs": len(jobs), "attempts": attempts, "attempt_gpu_seconds": gpu_seconds, "never_ran": never_ran}


def priorities(folder: Path) -> dict[str, Any]:
    """Compute every priority that slurmctld logged by the policy's own code, from the times of jobs."""
    site = read_slurm_site(site_files([folder]))
    nodes, settings = site.found_nodes(), SlurmSettings(**scheduler_of(site)).priorities()
    cpus, memory_gb = sum(node.cpus for node in nodes), sum(node.memory_gb for node in nodes)
    capacity = Capacity(len(nodes), cpus, memory_gb, sum(count for node in nodes for _, count in node.gpus))
    rows = sorted(command.read_rows(folder / "golden_priorities.csv"), key=lambda row: float(row["epoch"]))
    book = PriorityBook(settings, site.queues(), capacity, _began_s(folder))
    events = _events(rows, site)
    weights, classic = book.settings.weights, book.settings.fair_share == "classic"
    worst = worst_classic = 0.0
    wrong, at = 0, 0
    for row in rows:
        now = float(row["epoch"])
        while at < len(events) and events[at][0] <= now:
            moment, ends, number, asked = events[at]
            book.end(number, moment) if ends else book.begin(number, asked, moment)
            at += 1
        book.calculate(now)
        asked = _asked(row, site)
        own, logged = book.factors(asked, now), Factors(*(float(row[f"{name}_f"]) for name in _LOGGED))
        apart = abs(own.fair_share - logged.fair_share)
        if classic:
            worst_classic, own = max(worst_classic, apart), own._replace(fair_share=logged.fair_share)
        differing = [abs(getattr(own, name) - getattr(logged, name)) for name in own._fields if getattr(weights, name)]
        worst = max([worst, *differing])
        total, there = book.total(asked, own), float(row["total_logged"])
        wrong += truncated(total) != truncated(there) and abs(total - there) > _SLACK
    counts = {"rows": len(rows), "worst_factor": worst, "wrong_totals": wrong}
    return counts | ({"worst_classic_fair_share": worst_classic} if classic else {})


_LOGGED = ("age", "assoc", "fairshare", "jobsize", "partition", "qos")


def _events(rows: Sequence[Mapping[str, str]], site: SlurmSite) -> list[tuple[float, bool, int, Asked]]:
    """Starts and ends of the jobs in order. At equal times starts come first, so that a job of
    length 0 ends.
    """
    jobs = {row["job"]: row for row in rows}
    events = []
    for number, (_, row) in enumerate(jobs.items()):
        start_s, end_s = (_moment(row[name]) for name in ("start", "end"))
        if start_s is not None:
            events.append((start_s, False, number, _asked(row, site)))
            if end_s is not None:
                events.append((end_s, True, number, _asked(row, site)))
    return sorted(events, key=lambda event: event[:3])


def _asked(row: Mapping[str, str], site: SlurmSite) -> Asked:
    association = next((f"{account}/{user}" for account, user in site.users if user == row["user"]), None)
    if association is None:
        raise TraceError(f"job {row['job']} is of the user {row['user']!r}, whom sshare.txt does not list")
    return Asked(
        user=association,
        partition=row["partition"],
        qos=row["qos"],
        submit_s=float(row["submit"]),
        eligible_s=_moment(row["eligible"]),
        nodes=float(row["nodes"]),
        cpus=float(row["cpus"]),
        memory_gb=float(row["mem_mb"]) / 1024,
        gpus=float(row["gpus"]),
        limit_s=60 * float(row["limit_min"]),
        nice=float(row["nice"]),
    )


def _moment(text: str) -> float | None:
    return None if text in ("", "None", "Unknown") else float(text)


def _began_s(folder: Path) -> float:
    """Time at which slurmctld began to count periods."""
    text = (folder / "slurmctld-priority.log").read_text(encoding="utf-8")
    match = re.search(r"\[([\d-]+T[\d:]+)\.\d+\][^\n]*_read_last_decay_ran", text)
    if match is None:
        raise TraceError(f"{folder / 'slurmctld-priority.log'}:1: it does not say when the decay began")
    return datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()


def starts(folder: Path) -> dict[str, Any]:
    """Order and times of starts under the policy itself, by the variant that comes nearest."""
    site = read_slurm_site(site_files([folder]))
    settings = scheduler_of(site)
    if settings["bf_interval_s"] <= 1:
        # The cycle's milliseconds move later cycles by parts of seconds, which the log does not have. They decide
        # whether the main loop or backfill comes first: with 0.001 s, 4 of the 23 starts of the second run move.
        settings["bf_cycle_s"] = 0.0
    jobs, first_s = _submitted(folder)
    phase_s = 0.0  # of the calculations of priorities
    if (folder / "slurmctld-priority.log").exists():
        phase_s = (_began_s(folder) - first_s) % settings["calc_period_s"]
    began = {place: job.start_s for place, job in enumerate(jobs) if job.start_s is not None}
    fits = []
    cycles_s, rests_s = _phases_s(jobs, settings["bf_interval_s"]), (0.0, settings["sched_min_interval_s"] or 2.0)
    for tie, lag_s, cycle_s, rest_s in product(_TIES, _LAGS_S, cycles_s, rests_s):
        phases = {"bf_phase_s": cycle_s, "calc_phase_s": phase_s, "sched_min_interval_s": rest_s}
        policy = SlurmMultifactor(**settings | phases | {"bf_ties": tie, "kill": "never"})
        own_s, by = _simulated(site, jobs, policy, lag_s)
        there = sorted(began, key=lambda job: (began[job], own_s[job], job))
        here = sorted(began, key=lambda job: (own_s[job], began[job], job))
        gaps = [abs(began[job] - own_s[job]) for job in began]
        other = sum(jobs[job].by not in ("", by[job]) for job in began)
        variant = {"tie_rule": tie, "lag_s": lag_s, "phase_s": cycle_s, "rest_s": rest_s, "other_scheduler": other}
        figures = {"worst_gap_s": max(gaps, default=0.0), "median_gap_s": median(gaps) if gaps else 0.0}
        differs = len(there) - _longest_common(there, here)
        fits.append({"jobs": len(began), "order_differs": differs} | figures | variant)
    return min(fits, key=lambda fit: (fit["order_differs"], fit["worst_gap_s"]))


_TIES = ("wait", "fit")
_LAGS_S = (0.0, 0.5, 1.0)
"""Delay in seconds after the end of a job until its node is free. 0 and 1 s were seen about equally
often.
"""
_PHASES = 3


class _Submitted(NamedTuple):
    """A job of the run, its start there, and the part of the scheduler that started it. Times are relative to the first
    submission.
    """

    job: Job
    start_s: float | None
    by: str


def _phases_s(jobs: Sequence[_Submitted], interval_s: float) -> list[float]:
    """Phases of its interval at which backfill may have run: those with most of its starts, by the
    log's flags.
    """
    if interval_s <= 1:
        return [0.0]  # the log has no parts of seconds
    seen = Counter([job.start_s % interval_s for job in jobs if job.by == "backfill" and job.start_s is not None])
    return [phase for phase, _ in seen.most_common(_PHASES)] or [0.0]


def _simulated(
    site: SlurmSite, jobs: Sequence[_Submitted], policy: SlurmMultifactor, lag_s: float
) -> tuple[dict[int, float], dict[int, str]]:
    """Return the start of each job, and the part of the scheduler that made it.

    A gang runs on one GPU type here, so types differ only if jobs ask for them.
    """
    tasks = [task for submitted in jobs for task in submitted.job.tasks]
    asked = {kind for task in tasks for kind in task.gpu_types or ()}
    types = {kind: GpuType(kind or "gpu", 1.0, 1.0, 1.0, 1.0, 0.0) for kind in (asked or {""})}
    nodes = tuple([_node(node, types) for node in site.found_nodes()])
    work = [
        replace(submitted.job, graph=TaskGraph((replace(task, work=task.work + lag_s),)))
        for submitted, task in zip(jobs, tasks, strict=True)
    ]
    watched = _Watched(policy)
    schedule = ClusterScenario(Cluster(nodes), work, queues=site.queues()).kernel(0).run(watched)
    own_s: dict[int, float] = {}
    for row in schedule.log:
        if row.kind == Kind.STARTED:
            own_s.setdefault(row.job, row.time_s)
        elif row.kind == Kind.REJECTED:
            raise TraceError(f"job {jobs[row.job].job.id} asks for what the nodes of the run do not have")
    return own_s, watched.by


def _node(node: FoundNode, types: Mapping[str, GpuType]) -> Node:
    count = sum(size for _, size in node.gpus)
    one = types.get("") or GpuType("other", 1.0, 1.0, 1.0, 1.0, 0.0)
    return Node(node.name, types.get(node.gpus[0][0], one) if count else None, count, node.cpus, node.memory_gb)


class _Watched:
    """The policy, and for each job the part of it that started the job."""

    def __init__(self, policy: SlurmMultifactor) -> None:
        self.policy = policy
        self.by: dict[int, str] = {}

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        """Decide like the policy."""
        for decision in self.policy.decide(view):
            if isinstance(decision, Start):
                task: Any = decision.task
                self.by[task.job.number] = self.policy.latest
            yield decision


def _submitted(folder: Path) -> tuple[list[_Submitted], float]:
    """Return the jobs that became eligible, in order, and the time at which the first did.

    ``golden_starts.csv`` has the run time of jobs that did not end, ``golden_priorities.csv`` their
    nice values.
    """
    ran_s: dict[str, float] = {}
    nice: dict[str, float] = {}
    if (folder / "golden_priorities.csv").exists():
        nice = {row["job"]: float(row["nice"]) for row in command.read_rows(folder / "golden_priorities.csv")}
    if (folder / "golden_starts.csv").exists():
        rows = command.read_rows(folder / "golden_starts.csv")
        ran_s = {row["job"]: float(row["run_s"]) for row in rows if row.get("run_s")}
    head, *lines = [line.split("|") for _, line in Source(folder / "sacct-aDX.txt").lines() if line.strip()]
    rows = [row for line in lines if (row := dict(zip(head, line, strict=False)))["JobID"].replace("_", "").isdigit()]
    since = {id(row): _moment(row["Eligible"]) for row in rows}
    rows = [row for row in rows if since[id(row)] is not None]
    first_s = min([since[id(row)] or 0.0 for row in rows], default=0.0) // 60 * 60  # Slurm rounds times to minutes
    submitted = []
    for row in rows:
        submit_s, start_s, end_s = since[id(row)] or 0.0, _moment(row["Start"]), _moment(row["End"])
        minutes = row["TimelimitRaw"]
        limit_s = 60.0 * float(minutes) if minutes.isdigit() else 365 * 86400.0
        run_s = ran_s.get(row["JobID"], limit_s)
        if start_s is not None and end_s is not None:
            run_s = end_s - start_s
        flags = row.get("Flags", "")
        by = "backfill" if "SchedBackfill" in flags else "main" if re.search("SchedMain|SchedSubmit", flags) else ""
        asked, nodes = resources(row["ReqTRES"]), max(1, int(row["NNodes"] or 1))
        task = Task(
            "job",
            run_s,
            nodes,
            nodes > 1,
            ceil(asked.gpus / nodes),
            asked.cpus / nodes,
            asked.memory_gb / nodes,
            tuple(kind for kind, _ in asked.types) or None if asked.gpus else None,
            estimate=limit_s,
        )
        partition, priority = row["Partition"].partition(",")[0], -nice.get(row["JobID"], 0.0)
        named = {"partition": partition, "qos": row["QOS"], "account": row["Account"], "user": row["User"]}
        job = Job.single(row["JobID"], task, submit_s - first_s, priority=priority, **named)
        submitted.append(_Submitted(job, None if start_s is None else start_s - first_s, by))
    return sorted(submitted, key=lambda one: (one.job.arrival_s, _number(one.job.id))), first_s


def _number(name: str) -> tuple[int, ...]:
    return tuple([int(digits) for digits in re.findall(r"\d+", name)])


def _longest_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of jobs in the same order in both."""
    place = {number: index for index, number in enumerate(other)}
    tails: list[int] = []  # the longest rising sequence of places, by patience sorting
    for index in (place[number] for number in one):
        at = bisect_left(tails, index)
        tails[at : at + 1] = [index]
    return len(tails)


def _is_backfill_only(folder: Path) -> bool:
    """True if the run used backfill without priorities, so that its starts follow from its jobs
    alone.
    """
    conf = folder / "slurm.conf"
    return conf.exists() and "PriorityType=priority/basic" in conf.read_text(encoding="utf-8")


def measured(folder: Path) -> dict[str, dict[str, Any]]:
    """Check accounting, and priorities and starts if the run has the files for them."""
    parts: dict[str, dict[str, Any]] = {"accounting": accounting(folder)}
    if (folder / "golden_priorities.csv").exists():
        parts["priorities"] = priorities(folder)
    if (folder / "golden_starts.csv").exists() or _is_backfill_only(folder):
        parts["starts"] = starts(folder)
    return parts


def _work(options: command.Options, say: command.Say) -> dict[str, dict[str, Any]]:
    parts = measured(options.run)
    say(parts)
    return parts


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="a folder of one run")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
