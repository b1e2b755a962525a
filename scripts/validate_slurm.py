"""A real run of Slurm against what is made of its log: accounting, priorities, starts.

    python scripts/validate_slurm.py --run DIR [--json]

DIR is a folder with ``sacct-aDX.txt`` (docs/traces.md has the command), and for the priorities ``slurm.conf``,
``sshare.txt``, ``sacctmgr-assoc.txt``, ``sacctmgr-qos.txt``, ``scontrol-show-nodes.txt``, ``slurmctld-priority.log``
(DebugFlags=Priority) and ``golden_priorities.csv``, for the starts ``golden_starts.csv``.

- accounting: ``jobs`` that ran, their ``attempts`` (rows with an allocation), ``attempt_gpu_seconds`` (GPUs as Slurm
  counts them x seconds that ran, of all attempts), and rows that ``never_ran``.
- priorities: ``worst_factor`` is the largest difference of any factor but classic fair share, whose is in
  ``worst_classic_fair_share`` (slurmctld takes account usage from its last round, the documentation does not say so);
  ``wrong_totals`` are priorities that differ after truncation. A total takes classic fair share from the log.
- starts: backfill with reservations of named nodes for all, under both rules for a limit that ends just when a
  reservation begins, and with 0 or 1 s between the end of a job and the start of the next (both were measured); of
  these the nearest, which is told. ``order_differs`` counts the jobs that had to be moved for the same order of starts,
  ``worst_gap_s`` is the largest difference of a start, ``median_gap_s`` the usual one.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from dagsim.errors import DagsimError, TraceError
from dagsim.model import NodePartition, Qos, QueueNode, QueueTree
from dagsim.systems.cluster.policies.fair.multifactor import Factors, Weights, truncated
from dagsim.systems.cluster.policies.production.slurm_priority import Asked, Capacity, PriorityBook, PrioritySettings
from dagsim.traces.hostlists import hosts
from dagsim.traces.nodes import FoundNode, read_nodes
from dagsim.traces.report import ReadReport
from dagsim.traces.slurm.fields import array_tasks, duration_s, memory_gb, resources
from dagsim.traces.slurm.rows import COLUMNS, sacct_rows
from dagsim.traces.source import Source

__all__ = ["accounting", "priorities", "starts"]

_WORDS = re.compile(r'(?:[^\s"]|"[^"]*")+')
_SLACK = 0.01
"""The log has two digits of a total, and six of a factor that is taken from it."""


def accounting(folder: Path) -> dict[str, Any]:
    """What the log holds, before any job is dropped."""
    jobs: set[str] = set()
    attempts, gpu_seconds, never_ran = 0, 0.0, 0
    for _, row in sacct_rows(Source(folder / "sacct-aDX.txt"), ReadReport(), None):
        fields = dict(zip(COLUMNS, row, strict=True))
        if "." in fields["JobID"].partition("[")[0]:
            continue  # a step
        given = resources(fields["AllocTRES"])
        if not given.given:
            never_ran += array_tasks(fields["JobID"]) or 1
            continue
        jobs.add(fields["JobID"])
        attempts += 1
        gpu_seconds += given.gpus * (duration_s(fields["ElapsedRaw"], "ElapsedRaw") or 0.0)
    return {"jobs": len(jobs), "attempts": attempts, "attempt_gpu_seconds": gpu_seconds, "never_ran": never_ran}


@dataclass(frozen=True, slots=True)
class _Site:
    """The configuration of the run: ``slurm.conf`` and the accounting data base."""

    said: Mapping[str, str]
    queues: QueueTree
    capacity: Capacity
    nodes: Sequence[FoundNode]
    users: Mapping[str, str]
    """The association of each user."""
    associations: Mapping[str, float]
    """Priorities by association."""

    @property
    def settings(self) -> PrioritySettings:
        """The keys that begin with Priority."""
        said, flags = self.said, self.said.get("PriorityFlags", "").split(",")
        names = {"age": "Age", "assoc": "Assoc", "fair_share": "Fairshare", "job_size": "JobSize"}
        names |= {"partition": "Partition", "qos": "QOS"}
        tres = [each.partition("=") for each in said.get("PriorityWeightTRES", "").split(",") if each]
        known = {ours: float(said.get(f"PriorityWeight{name}", 0)) for ours, name in names.items()}
        return PrioritySettings(
            Weights(**known, tres={_resource(name): float(weight) for name, _, weight in tres}),
            max_age_s=_seconds(said.get("PriorityMaxAge", "7-0"), "PriorityMaxAge"),
            half_life_s=_seconds(said.get("PriorityDecayHalfLife", "7-0"), "PriorityDecayHalfLife"),
            calc_period_s=60.0 * float(said.get("PriorityCalcPeriod", 5)),
            fair_share="classic" if "NO_FAIR_TREE" in flags else "tree",
            damping=float(said.get("FairShareDampeningFactor", 1)),
            favor_small=said.get("PriorityFavorSmall", "NO").upper() == "YES",
            relative_size="SMALL_RELATIVE_TO_TIME" in flags,
            max_tres="MAX_TRES" in flags,
            accrue_always="ACCRUE_ALWAYS" in flags,
        )


def _seconds(text: str, name: str) -> float:
    return duration_s(f"{text}:00:00" if re.fullmatch(r"\d+-\d+", text) else text, name) or 0.0


def _resource(name: str) -> str:
    """The name here of a resource of Slurm's."""
    known = {"cpu": "cpus", "mem": "memory_gb", "gres/gpu": "gpus"}
    if name.lower() not in known:
        raise TraceError(f"slurm.conf weighs {name!r}; only {', '.join(known)} are known here")
    return known[name.lower()]


def priorities(folder: Path) -> dict[str, Any]:
    """Every priority that slurmctld logged, computed anew by the policy's own code from the times of jobs."""
    site = _site(folder)
    with (folder / "golden_priorities.csv").open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["epoch"]))
    book = PriorityBook(site.settings, site.queues, site.capacity, _began_s(folder), site.associations)
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
    found = {"rows": len(rows), "worst_factor": worst, "wrong_totals": wrong}
    return found | ({"worst_classic_fair_share": worst_classic} if classic else {})


_LOGGED = ("age", "assoc", "fairshare", "jobsize", "partition", "qos")


def _events(rows: Sequence[Mapping[str, str]], site: _Site) -> list[tuple[float, bool, int, Asked]]:
    """Starts and ends of the jobs, in order; of one instant starts first, so that a job of no length ends."""
    jobs = {row["job"]: row for row in rows}
    found = []
    for number, (_, row) in enumerate(jobs.items()):
        start_s, end_s = (_moment(row[name]) for name in ("start", "end"))
        if start_s is not None:
            found.append((start_s, False, number, _asked(row, site)))
            if end_s is not None:
                found.append((end_s, True, number, _asked(row, site)))
    return sorted(found, key=lambda event: event[:3])


def _asked(row: Mapping[str, str], site: _Site) -> Asked:
    if row["user"] not in site.users:
        raise TraceError(f"job {row['job']} is of the user {row['user']!r}, whom sshare.txt does not list")
    return Asked(
        site.users[row["user"]],
        row["partition"],
        row["qos"],
        float(row["submit"]),
        _moment(row["eligible"]),
        float(row["nodes"]),
        float(row["cpus"]),
        float(row["mem_mb"]) / 1024,
        float(row["gpus"]),
        60 * float(row["limit_min"]),
        float(row["nice"]),
    )


def _moment(text: str) -> float | None:
    return None if text in ("", "None", "Unknown") else float(text)


def _billed(weights: str) -> dict[str, float]:
    """TRESBillingWeights; memory has a unit, and is counted in GB."""
    found = {}
    for name, _, weight in [each.partition("=") for each in weights.strip('"').split(",") if each]:
        number = float(weight.rstrip("KMGTPkmgtp"))
        unit = name.lower() == "mem" and weight[-1].isalpha()
        found[_resource(name)] = number / memory_gb(f"1{weight[-1]}") if unit else number
    return found


def _began_s(folder: Path) -> float:
    """When slurmctld began to count periods."""
    text = (folder / "slurmctld-priority.log").read_text(encoding="utf-8")
    found = re.search(r"\[([\d-]+T[\d:]+)\.\d+\][^\n]*_read_last_decay_ran", text)
    if found is None:
        raise TraceError(f"{folder / 'slurmctld-priority.log'}:1: it does not say when the decay began")
    return datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()


def _site(folder: Path) -> _Site:
    said: dict[str, str] = {}
    partitions = []
    for line in (folder / "slurm.conf").read_text(encoding="utf-8").splitlines():
        if line.startswith("PartitionName="):
            partitions.append(_partition(dict(word.split("=", 1) for word in _WORDS.findall(line) if "=" in word)))
        elif "=" in line and not line.startswith(("#", "NodeName=")):
            key, _, value = line.partition("=")
            said[key.strip()] = value.strip()
    partitions.sort(key=lambda each: not each[0])
    tree, users = _accounts(folder)
    qos = [Qos(row["Name"], float(row["Priority"] or 0)) for row in _table(folder / "sacctmgr-qos.txt")]
    nodes = read_nodes(Source(folder / "scontrol-show-nodes.txt"))
    amounts = [sum(node.cpus for node in nodes), sum(node.memory_gb for node in nodes)]
    rows = [row for row in _table(folder / "sacctmgr-assoc.txt") if row.get("Priority") and row.get("User")]
    return _Site(
        said,
        QueueTree(tree, tuple([each for _, each in partitions]), tuple(qos)),
        Capacity(len(nodes), *amounts, sum(count for node in nodes for _, count in node.gpus)),
        nodes,
        users,
        {users[row["User"]]: float(row["Priority"]) for row in rows if row["User"] in users},
    )


def _partition(said: Mapping[str, str]) -> tuple[bool, NodePartition]:
    """A partition, and whether it is the default."""
    return said.get("Default", "NO").upper() == "YES", NodePartition(
        said["PartitionName"],
        hosts(said["Nodes"]) if said.get("Nodes", "ALL").upper() != "ALL" else (),
        float(said.get("PriorityJobFactor", 1)),
        int(said.get("PriorityTier", 1)),
        _minutes_s(said.get("MaxTime")),
        _minutes_s(said.get("DefaultTime")),
        said.get("OverSubscribe", "").upper() == "EXCLUSIVE",
        _billed(said.get("TRESBillingWeights", "")),
    )


def _minutes_s(text: str | None) -> float | None:
    if text is None or text.upper() in ("UNLIMITED", "INFINITE"):
        return None
    return 60.0 * float(text) if text.isdigit() else _seconds(text, "MaxTime")


def _accounts(folder: Path) -> tuple[tuple[QueueNode, ...], dict[str, str]]:
    """The tree of ``sshare``, told by how far names are indented, and the association of each user."""
    below: dict[str, list[str]] = {}
    shares: dict[str, float] = {}
    members: dict[str, dict[str, float]] = {}
    users: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for row in _table(folder / "sshare.txt"):
        name, user = row["Account"].strip(), row["User"]
        depth = len(row["Account"]) - len(row["Account"].lstrip())
        if name == "root" and not user:
            above = [(-1, "root")]
            continue
        if user:
            users[user] = f"{name}/{user}"
            members.setdefault(name, {})[user] = float(row["RawShares"])
            continue
        while above[-1][0] >= depth:
            above.pop()
        below.setdefault(above[-1][1], []).append(name)
        shares[name] = float(row["RawShares"])
        above.append((depth, name))

    def made(name: str) -> QueueNode:
        children = tuple([made(child) for child in below.get(name, ())])
        return QueueNode(name, shares[name], users=members.get(name, {}), children=children)

    return tuple([made(name) for name in below.get("root", ())]), users


def _table(path: Path) -> list[dict[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[0].split("|")
    return [dict(zip(header, line.split("|"), strict=False)) for line in lines[1:] if line.strip()]


class _Submitted(NamedTuple):
    """A job of ``golden_starts.csv``."""

    number: int
    submit_s: int
    limit_s: int
    nodes: int
    run_s: int
    start_s: int | None


def starts(folder: Path) -> dict[str, Any]:
    """The order and instants of starts, under whichever of the two tie rules comes nearer."""
    with (folder / "golden_starts.csv").open(encoding="utf-8", newline="") as file:
        jobs = [_submitted(row) for row in csv.DictReader(file)]
    nodes = len(read_nodes(Source(folder / "scontrol-show-nodes.txt")))
    began = [job for job in jobs if job.start_s is not None]
    found = []
    for tie, lag in product((0, 1), (0, 1)):
        own = _backfilled(jobs, nodes, tie, lag)
        there = [job.number for job in sorted(began, key=lambda job: (job.start_s or 0, job.number))]
        here = [job.number for job in sorted(began, key=lambda job: (own[job.number], job.number))]
        gaps = [abs((job.start_s or 0) - own[job.number]) for job in began]
        differs = len(there) - _longest_common(there, here)
        gap = {"worst_gap_s": max(gaps), "median_gap_s": median(gaps), "tie_rule": tie, "lag_s": lag}
        found.append({"jobs": len(began), "order_differs": differs} | gap)
    return min(found, key=lambda each: (each["order_differs"], each["worst_gap_s"]))


def _longest_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Jobs that come in the same order in both."""
    place = {number: index for index, number in enumerate(other)}
    tails: list[int] = []  # the longest rising sequence of places, by patience sorting
    for index in (place[number] for number in one):
        at = bisect_left(tails, index)
        tails[at : at + 1] = [index]
    return len(tails)


def _submitted(row: Mapping[str, str]) -> _Submitted:
    numbers = [int(float(row[name])) for name in ("job", "submit_s", "limit_s", "nodes", "run_s")]
    return _Submitted(*numbers, int(float(row["start_s"])) if row["start_s"] else None)


def _backfilled(jobs: Sequence[_Submitted], nodes: int, tie_s: int, lag_s: int) -> dict[int, int]:
    """First come, first served with backfill on equal nodes taken whole, each job with a reservation of named nodes.

    With ``tie_s`` 1 a limit that ends just when a reservation begins does not fit, with 0 it does. A node is free
    ``lag_s`` after the end of its job.
    """
    started: dict[int, int] = {}
    ends: dict[int, int] = {}
    held: list[tuple[int, int, frozenset[int]]] = []  # job, when its limit ends, nodes
    order = sorted(jobs, key=lambda job: (job.submit_s, job.number))
    now = order[0].submit_s
    while len(started) < len(order):
        held = [each for each in held if ends[each[0]] > now]
        taken = [(now, max(end, now + 1), where) for _, end, where in held]
        for job in [job for job in order if job.submit_s <= now and job.number not in started]:
            begin, where = _earliest(job, taken, nodes, now, tie_s)
            taken.append((begin, begin + job.limit_s, where))
            if begin == now:
                started[job.number], ends[job.number] = now, now + job.run_s + lag_s
                held.append((job.number, now + job.limit_s, where))
        now += 1
    return started


def _earliest(
    job: _Submitted, taken: Sequence[tuple[int, int, frozenset[int]]], nodes: int, now: int, tie_s: int
) -> tuple[int, frozenset[int]]:
    """When enough nodes are free for the whole limit, and the first of them."""
    for begin in sorted({now} | {end for _, end, _ in taken if end > now}):
        until = begin + job.limit_s + tie_s
        busy = {node for start, end, where in taken if start < until and end > begin for node in where}
        free = [node for node in range(nodes) if node not in busy]
        if len(free) >= job.nodes:
            return begin, frozenset(free[: job.nodes])
    raise TraceError(f"job {job.number} asks for {job.nodes} of {nodes} nodes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="a folder of one run")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        found: dict[str, Any] = {"accounting": accounting(given.run)}
        if (given.run / "golden_priorities.csv").exists():
            found["priorities"] = priorities(given.run)
        if (given.run / "golden_starts.csv").exists():
            found["starts"] = starts(given.run)
    except (DagsimError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(found))
    else:
        for part, figures in found.items():
            print(f"{part}: {', '.join(f'{name} {value:g}' for name, value in figures.items())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
