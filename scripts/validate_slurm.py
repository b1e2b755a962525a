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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from dagsim.errors import DagsimError, TraceError
from dagsim.systems.cluster.policies.fair.multifactor import (
    Account,
    Factors,
    ShareTree,
    Weights,
    age,
    billing,
    decay_per_second,
    job_size,
    total,
    truncated,
)
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


class _Job(NamedTuple):
    """A job of ``golden_priorities.csv``."""

    user: str
    submit_s: float
    eligible_s: float | None
    start_s: float | None
    end_s: float | None
    rate: float


@dataclass(frozen=True, slots=True)
class _Site:
    """What ``slurm.conf`` and the accounting data base say."""

    said: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, str]]
    nodes: Sequence[FoundNode]
    accounts: Sequence[Account]
    users: Mapping[str, str]
    """The node of the tree by user."""
    qos: Mapping[str, float]
    assoc: Mapping[str, float]

    @property
    def flags(self) -> str:
        return self.said.get("PriorityFlags", "")

    @property
    def weights(self) -> Weights:
        names = {"age": "Age", "assoc": "Assoc", "fair_share": "Fairshare", "job_size": "JobSize"}
        names |= {"partition": "Partition", "qos": "QOS"}
        tres = [each.partition("=") for each in self.said.get("PriorityWeightTRES", "").split(",") if each]
        known = {ours: float(self.said.get(f"PriorityWeight{name}", 0)) for ours, name in names.items()}
        return Weights(**known, tres={name.lower(): float(weight) for name, _, weight in tres})


def priorities(folder: Path) -> dict[str, Any]:
    """Every priority that slurmctld logged, computed anew from the configuration and the times of jobs."""
    site = _site(folder)
    with (folder / "golden_priorities.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    shares = dict(_shares(folder, site, _jobs(rows, site), max(float(row["epoch"]) for row in rows)))
    classic = "NO_FAIR_TREE" in site.flags
    worst = worst_classic = 0.0
    wrong = 0
    for row in rows:
        factors, tres = _factors(row, site), _tres(row, site)
        past = [moment for moment in shares if moment <= float(row["epoch"])]
        share = shares[max(past)][site.users[row["user"]]] if past else 1.0 if classic else 0.0
        logged = Factors(*(float(row[f"{name}_f"]) for name in _LOGGED))
        weights = site.weights
        differing = {
            name: abs(own - there)
            for name, own, there in zip(Factors._fields, factors, logged, strict=True)
            if getattr(weights, name) and name != "fair_share"
        }
        apart = abs(share - logged.fair_share)
        worst = max(worst, *differing.values(), 0.0 if classic else apart)
        worst_classic = max(worst_classic, apart if classic else 0.0)
        own = total(
            factors._replace(fair_share=logged.fair_share if classic else share), weights, tres, float(row["nice"])
        )
        there = float(row["total_logged"])
        wrong += truncated(own) != truncated(there) and abs(own - there) > _SLACK
    found = {"rows": len(rows), "worst_factor": worst, "wrong_totals": wrong}
    return found | ({"worst_classic_fair_share": worst_classic} if classic else {})


_LOGGED = ("age", "assoc", "fairshare", "jobsize", "partition", "qos")


def _factors(row: Mapping[str, str], site: _Site) -> Factors:
    """All factors but fair share, which is of the last round."""
    since = row["submit"] if "ACCRUE_ALWAYS" in site.flags else row["eligible"]
    waited_s = float(row["epoch"]) - float(since) if since not in ("", "None") else 0.0
    parts = {name: float(said.get("PriorityJobFactor", 1)) for name, said in site.partitions.items()}
    return Factors(
        age(waited_s, duration_s(site.said["PriorityMaxAge"], "PriorityMaxAge") or 0.0),
        site.assoc.get(row["user"], 0.0) / (max(site.assoc.values(), default=0.0) or 1.0),
        0.0,
        job_size(
            float(row["nodes"]),
            float(row["cpus"]),
            len(site.nodes),
            sum(node.cpus for node in site.nodes),
            float(row["limit_min"]),
            small=site.said.get("PriorityFavorSmall", "NO").upper() == "YES",
            relative="SMALL_RELATIVE_TO_TIME" in site.flags,
        ),
        parts[row["partition"]] / max(parts.values()),
        site.qos.get(row["qos"], 0.0) / (max(site.qos.values(), default=0.0) or 1.0),
    )


def _tres(row: Mapping[str, str], site: _Site) -> dict[str, float]:
    gpus = sum(count for node in site.nodes for _, count in node.gpus)
    return {
        "cpu": float(row["cpus"]) / sum(node.cpus for node in site.nodes),
        "mem": float(row["mem_mb"]) / 1024 / sum(node.memory_gb for node in site.nodes),
        "gres/gpu": float(row["gpus"]) / gpus if gpus else 0.0,
    }


def _jobs(rows: Sequence[Mapping[str, str]], site: _Site) -> list[_Job]:
    """Each job once, with what a second of it costs."""
    jobs = {}
    for row in rows:
        moments = [float(row[name]) if row[name] not in ("", "None") else None for name in _MOMENTS]
        amounts = {"cpu": float(row["cpus"]), "mem": float(row["mem_mb"]) / 1024, "gres/gpu": float(row["gpus"])}
        said = site.partitions[row["partition"]].get("TRESBillingWeights", "").strip('"')
        pairs = [each.partition("=") for each in said.split(",") if each]
        weights = {name.lower(): _billed(name, weight) for name, _, weight in pairs}
        rate = billing(amounts, weights, largest="MAX_TRES" in site.flags)
        jobs[row["job"]] = _Job(site.users[row["user"]], float(row["submit"]), *moments, rate)
    return list(jobs.values())


_MOMENTS = ("eligible", "start", "end")


def _billed(name: str, weight: str) -> float:
    """The weight of a resource; memory has a unit, and is counted in GB."""
    number = float(weight.rstrip("KMGTPkmgtp"))
    return number / memory_gb(f"1{weight[-1]}") if name.lower() == "mem" and weight[-1].isalpha() else number


def _shares(
    folder: Path, site: _Site, jobs: Sequence[_Job], until_s: float
) -> Iterator[tuple[float, dict[str, float]]]:
    """The fair share of each user at each instant at which slurmctld computed it."""
    half_life_s = duration_s(site.said["PriorityDecayHalfLife"], "PriorityDecayHalfLife") or 0.0
    tree = ShareTree(site.accounts, decay_per_second(half_life_s))
    period_s = 60.0 * float(site.said.get("PriorityCalcPeriod", 5))
    before_s = _began_s(folder)
    while (now_s := before_s + period_s) <= until_s + 1:
        for job in sorted((job for job in jobs if job.end_s is not None), key=lambda job: job.end_s or 0.0):
            if before_s < (job.end_s or 0.0) <= now_s:  # at its end the rest is added, and nothing decays
                tree.charge(job.user, job.rate, (job.end_s or 0.0) - max(before_s, job.start_s or 0.0))
        tree.pass_time(now_s - before_s)
        for job in jobs:
            if job.start_s is not None and job.start_s <= now_s and (job.end_s is None or job.end_s > now_s):
                tree.charge(job.user, job.rate, now_s - max(before_s, job.start_s))
        damping = float(site.said.get("FairShareDampeningFactor", 1))
        yield now_s, tree.classic(damping) if "NO_FAIR_TREE" in site.flags else tree.fair_tree()
        before_s = now_s


def _began_s(folder: Path) -> float:
    """When slurmctld began to count periods."""
    text = (folder / "slurmctld-priority.log").read_text(encoding="utf-8")
    found = re.search(r"\[([\d-]+T[\d:]+)\.\d+\][^\n]*_read_last_decay_ran", text)
    if found is None:
        raise TraceError(f"{folder / 'slurmctld-priority.log'}:1: it does not say when the decay began")
    return datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()


def _site(folder: Path) -> _Site:
    said: dict[str, str] = {}
    partitions: dict[str, dict[str, str]] = {}
    for line in (folder / "slurm.conf").read_text(encoding="utf-8").splitlines():
        if line.startswith("PartitionName="):
            pairs = dict(word.split("=", 1) for word in _WORDS.findall(line) if "=" in word)
            partitions[pairs["PartitionName"]] = pairs
        elif "=" in line and not line.startswith(("#", "NodeName=")):
            key, _, value = line.partition("=")
            said[key.strip()] = value.strip()
    accounts, users = _accounts(folder)
    return _Site(
        said,
        partitions,
        read_nodes(Source(folder / "scontrol-show-nodes.txt")),
        accounts,
        users,
        {row["Name"]: float(row["Priority"] or 0) for row in _table(folder / "sacctmgr-qos.txt")},
        {row["User"]: float(row["Priority"]) for row in _table(folder / "sacctmgr-assoc.txt") if row.get("Priority")},
    )


def _accounts(folder: Path) -> tuple[list[Account], dict[str, str]]:
    """The tree of ``sshare``, told by how far names are indented, and the node of each user."""
    accounts: list[Account] = []
    users: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for row in _table(folder / "sshare.txt"):
        name, user = row["Account"].strip(), row["User"]
        depth = len(row["Account"]) - len(row["Account"].lstrip())
        if name == "root" and not user:
            accounts.append(Account("root", None, 1.0))
            above = [(-1, "root")]
            continue
        while above[-1][0] >= depth:
            above.pop()
        node = f"{name}/{user}" if user else name
        accounts.append(Account(node, above[-1][1], float(row["RawShares"]), bool(user)))
        if user:
            users[user] = node
        else:
            above.append((depth, name))
    return accounts, users


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
