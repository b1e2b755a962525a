"""Jobs of Gavel's simulator: ``python scripts/validate_gavel.py --cell FILE --inputs DIR [--own] [--json]``.

``FILE`` is a cell of ``golden/elastic/gavel``: policy, seed, cluster (GPUs by type), round_s, jobs (job, type, gpus,
steps, weight, arrival), or a trace in ``DIR/gavel`` instead of jobs, and perhaps ``allocations``, the shares at each
solve. With allocations, or with ``--own`` from dagsim's own solver, the policy ``gavel`` plays the cell on dagsim's
kernel. The two jobs of a pair end their micro-task together, as in Gavel's simulator. Where the cell has the jobs'
completion times, the largest difference is printed too, and the exit status is 1 if it is above 1e-6 s (with own shares
of a linear program: if the mean is more than 3 % away).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

import command

from dagsim.families.gavel.allocations import GAVEL_POLICIES, GivenShares, TotalDuration, allocator
from dagsim.families.gavel.published import Gavel
from dagsim.families.gavel.round_ledger import Allocation, Allocator, GavelJob
from dagsim.model import Cluster, Job, Task, gpu_type
from dagsim.model.log import Kind
from dagsim.systems.cluster.scenario import ClusterScenario

NO_PROGRAM = ("isolated", "fifo_perf", "fifo_packed", "allox")
"""Gavel's policies that solve no linear program; dagsim computes their shares itself."""
PLAYED = frozenset(GAVEL_POLICIES)
"""Gavel's policies that the policy ``gavel`` plays."""
CELLS = "golden/elastic/gavel"
TOLERANCE_S = 1e-6
"""Tolerance for the completion time of a job."""
MEAN_TOLERANCE = 0.03
"""Tolerance for the mean with own shares, as a part of it."""
_TABLE = "simulation_throughputs.json.gz"
_PROGRAMS = ("max_min_fairness", "max_sum_throughput", "min_total_duration", "finish_time_fairness")
"""Beginnings of the names of Gavel's policies that solve a program."""


def completed(cell: Mapping[str, Any], inputs: Path, *, own: bool = False) -> dict[str, Any]:
    """Play a cell; return the completion time of each job, their mean, and the end.

    With ``own``, shares come from dagsim's solver even if the cell has allocations.

    Raises:
        InputError: The cell lacks a key, or the table of rates a job.
    """
    with command.reading("--cell", "a cell of Gavel"):
        rates = command.read_json(inputs / "gavel" / _TABLE)
        jobs = cell.get("jobs") or list(_traced(inputs / "gavel" / cell["trace"]))
        names = {name: gpu_type(name.upper()).name for name in cell["cluster"]}
        work = [_job(place, job, rates, names) for place, job in enumerate(jobs)]
        pairs = _Pairs(rates, names)
        has_shares = bool(cell.get("allocations")) and not own and cell["policy"] not in NO_PROGRAM
        shares = _allocator(cell["policy"], has_shares)
        if has_shares:
            shares = GivenShares(shares, list(_given(cell["allocations"], [job["job"] for job in jobs], names)))
    cluster = Cluster.of({names[name]: count for name, count in cell["cluster"].items()}, per_node=1)
    seed = int(cell["seed"] or 0)
    policy = Gavel(shares, cell.get("round_s", 360.0), seed=seed, whole_steps=True, window=len(jobs), pair_rates=pairs)
    sharing = _LockStep(pairs, policy) if shares.pairs else None
    schedule = ClusterScenario(cluster, work, sharing=sharing).kernel(seed).run(policy)
    done_s = {row.job: row.time_s for row in schedule.log if row.kind == Kind.COMPLETED}
    rows = [
        {"job": job["job"], "jct": done_s[place] - job["arrival"] if place in done_s else None}
        for place, job in enumerate(jobs)
    ]
    return {
        "jobs": rows,
        "mean_jct_s": fmean([row["jct"] for row in rows if row["jct"] is not None]),
        "end_s": schedule.ended_s,
    }


def _traced(path: Path) -> Iterator[dict[str, Any]]:
    """The jobs of a trace of Gavel, numbered by line."""
    for number, line in enumerate(command.lines(path)):
        fields = line.rstrip("\n").split("\t")
        yield {
            "job": number,
            "type": fields[0],
            "gpus": int(fields[6]),
            "steps": int(fields[5]),
            "weight": float(fields[7]),
            "arrival": float(fields[9]),
        }


class _Pairs:
    """Gavel's table: steps per second of two jobs on one GPU, by their kinds."""

    def __init__(self, rates: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._rates = {names[name]: rates[name] for name in names}

    def of(self, first: object, second: object, type_: str) -> tuple[float, float]:
        mine, theirs = self._rates[type_][first][second]
        return float(mine), float(theirs)

    def __call__(self, first: GavelJob, second: GavelJob, type_: str) -> tuple[float, float]:
        return self.of(first.kind, second.kind, type_)


class _LockStep:
    """Gavel's simulator as a sharing model: the jobs of a pair do their steps of a micro-task in the
    same time, that of the slower one.
    """

    def __init__(self, pairs: _Pairs, policy: Gavel) -> None:
        self._pairs, self._policy = pairs, policy

    def pair(self, first: Task, second: Task, gpu: str) -> tuple[float, float] | None:
        rates = self._pairs.of(first.model, second.model, gpu)
        alone = [(task.speeds or {})[gpu] for task in (first, second)]
        return (rates[0] / alone[0], rates[1] / alone[1]) if min(rates) > 0 else None

    def rate(self, task: Task, other: Task, gpu: str, now: float) -> float:
        order = int(task.name) << 32
        micro = next(micro for micro in self._policy.micro_tasks if order in micro.key)
        return micro.steps[micro.key.index(order)] / (micro.finish_s - now) / (task.speeds or {})[gpu]


def _job(place: int, job: Mapping[str, Any], rates: Mapping[str, Any], names: Mapping[str, str]) -> Job:
    """A job whose work is in steps, at its own rates."""
    key = str((job["type"], job["gpus"]))
    speeds = {names[name]: float(rates[name][key]["null"]) for name in names}
    task = Task(str(place), job["steps"], job["gpus"], job["gpus"] > 1, speeds=speeds, model=key)
    return Job.single(str(job["job"]), task, job["arrival"], weight=job["weight"])


def _allocator(name: str, has_shares: bool) -> Allocator:
    """Gavel's policy of that name. If its shares are known, any of Gavel's programs, such as those with SLOs: then only
    the order of types and the pairs of the policy count, and its name says both.
    """
    if has_shares and name not in PLAYED and name.startswith(_PROGRAMS):
        return TotalDuration("perf" in name, "packed" in name)
    return allocator(name)


def _given(
    allocations: Sequence[Any], jobs: Sequence[int], names: Mapping[str, str]
) -> Iterator[tuple[float, Allocation]]:
    """The time and the shares of each solve. The policy numbers tasks by job, from the 33rd bit on."""
    place_of = {number: place << 32 for place, number in enumerate(jobs)}
    for time_s, rows in allocations:
        shares: Allocation = {}
        for text, row in rows.items():
            value = ast.literal_eval(text)
            key = tuple(place_of[number] for number in (value if isinstance(value, tuple) else (value,)))
            shares[key] = {names[name]: share for name, share in row.items()}
        yield time_s, shares


def largest_difference(cell: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> float | None:
    """Largest difference from the cell's completion times in seconds; None if the cell has none."""
    pairs = [
        (one["jct"], other["jct"])
        for one, other in zip(jobs, cell.get("jobs") or (), strict=False)
        if other.get("jct") is not None
    ]
    return max([abs(got - wanted) if got is not None else inf for got, wanted in pairs], default=None)


def mean_difference(cell: Mapping[str, Any], mean_s: float) -> float | None:
    """Difference from the cell's mean completion time, as a part of it; None if the cell has none."""
    expected = cell.get("mean_jct_s")
    return None if expected is None else mean_s / expected - 1


def _work(options: command.Options, say: command.Say) -> tuple[dict[str, Any], bool]:
    cell = command.read_json(options.cell)
    result = completed(cell, options.inputs, own=options.own)
    largest, mean = largest_difference(cell, result["jobs"]), mean_difference(cell, result["mean_jct_s"])
    say({name: value for name, value in result.items() if name != "jobs"})
    say({"largest difference of a job (s)": largest, "difference of the mean": mean})
    solved = cell["policy"] not in NO_PROGRAM and (options.own or not cell.get("allocations"))
    holds = abs(mean or 0.0) <= MEAN_TOLERANCE if solved else (largest or 0.0) <= TOLERANCE_S
    return result, holds


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--cell", type=Path, required=True, metavar="FILE", help="a cell as JSON, may end in .gz")
    parser.add_argument("--inputs", type=Path, required=True, metavar="DIR", help="a folder with gavel/ in it")
    parser.add_argument("--own", action="store_true", help="solve all programs, even if the cell has allocations")
    return command.run(parser, _work, holds=lambda result: result[1], convert=lambda result: result[0])


if __name__ == "__main__":
    raise SystemExit(main())
