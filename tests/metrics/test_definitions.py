"""Every metric computed a second time, from the CSV files of a run folder, by what its definition says.

Nothing here uses ``dagsim.metrics``: jobs, tasks and their times are those of the files, ideal times those of the jobs
as they were made, outages those that the run was given. A metric without a formula fails.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from support.command_line import fine

from dagsim.metrics import glossary, jobs_table, runs_table, summarize, to_csv
from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph, gpu_type
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import FailureLog
from dagsim.systems.cluster.policies import POLICIES
from dagsim.workload.records import write_jobs

SPEED = {"A100-40": 2.0, "T4": 1.0}
GPUS = {"A100-40": 4, "T4": 4}
NODES = {"a-0": 4, "t-0": 2, "t-1": 2, "p-0": 0}
TYPE = {"a-0": "A100-40", "t-0": "T4", "t-1": "T4"}
TFLOPS = {"A100-40": 19.49, "T4": 8.14}
WATTS = {"A100-40": (50.0, 0.8 * 400.0), "T4": (9.0, 0.8 * 70.0)}
ON_DEMAND = {"boot_s": 20.0, "idle_s": 15.0, "shutdown_s": 4.0, "price_per_h": 3.0}
EVERY_S = 60.0
PRICES = (0.5, 2.0, -0.25)
OUTAGES = ((1, 40.0, 90.0), (2, 120.0, 133.0), (1, 150.0, 160.0))
CONFIG = """
cluster:
  groups:
    - {name: a, gpu: A100-40, gpus: 4, cpus: 32, memory_gb: 256}
    - {name: t, count: 2, gpu: T4, gpus: 2, cpus: 16, memory_gb: 64}
    - {name: p, cpus: 8, memory_gb: 64}
workload: {kind: trace, path: jobs.jsonl}
runtime: {kind: recorded}
failures: [{kind: failure_log, path: outages.csv}]
preemption: {restart_s: 3}
seeds: 1
"""
POLICY = """
from dagsim.model import Kill
from dagsim.systems.cluster.policies import POLICIES

class Killing:
    def __init__(self):
        self.inner = POLICIES.create("2d-las")

    def decide(self, view):
        if view.now > 60.0:
            yield from [Kill(number) for number in view.jobs if number % 9 == 4]
        yield from self.inner.decide(view)
"""


def made(seed: int) -> list[Job]:
    """Jobs of one to three tasks, some of which no node can run, with several priorities, tenants and deadlines."""
    rng, now, jobs = random.Random(seed), 0.0, []
    for number in range(40):
        now += rng.choice((0.0, 5.0, rng.expovariate(1 / 12)))
        types = rng.choice((None, None, ("T4",)))
        tasks = tuple(
            Task(
                f"t{place}",
                rng.choice((4.0, rng.expovariate(1 / 60) + 1)),
                instances=rng.choice((1, 1, 3)),
                gpus=rng.choice((0.5, 1, 1, 2)),
                gpu_types=types,
                speeds=SPEED,
            )
            for place in range(rng.choice((1, 1, 2, 3)))
        )
        edges = tuple(Edge(place, place + 1) for place in range(len(tasks) - 1)) if rng.random() < 0.6 else ()
        if number in (0, 7, 16, 17):  # too large, no such GPU, without GPUs, without work
            tasks, edges = (
                (
                    {
                        0: Task("big", 5.0, gpus=16, speeds=SPEED),
                        7: Task("none", 5.0, gpus=1, gpu_types=("H100-80",), speeds=SPEED),
                        16: Task("cpu", 33.0, gpus=0, cpus=4.0),
                        17: Task("nothing", 0.0, speeds=SPEED),
                    }[number],
                ),
                (),
            )
        tenant = "zoe" if number == 0 else rng.choice(("ann", "bob", "eve"))
        deadline_s = now + rng.choice((50.0, 400.0)) if number % 3 == 0 else None
        jobs.append(
            Job(
                f"j{number}",
                TaskGraph(tasks, edges),
                now,
                float(rng.randint(0, 2)),
                tenant,
                deadline_s,
                rng.choice((1.0, 2.0)),
            )
        )
    return jobs


def ratio(above: float, below: float) -> float:
    """Quotient, of which 0 / 0 is 1: a job without work that did not wait took as long as it should."""
    return above / below if below else math.inf if above else 1.0


class Second:
    """A second reading of the files. All times in s."""

    def __init__(
        self,
        jobs: list[dict[str, str]],
        tasks: list[dict[str, str]],
        source: list[Job],
        end_s: float,
        outages: Sequence[tuple[int, float, float]] = OUTAGES,
        unfinished: str = "refuse",
    ) -> None:
        self.jobs, self.end_s, self.unfinished = jobs, end_s, unfinished
        self.first_s = min(float(job["arrival_s"]) for job in jobs)
        self.horizon_s = end_s - self.first_s
        self.rows = [row | {"end": float(row["end_s"] or end_s)} for row in tasks]
        self.runs_of = defaultdict(list)
        for row in self.rows:
            self.runs_of[row["job"]].append((float(row["start_s"]), row["end"]))
        self.source = {job.id: job for job in source}
        self.accepted = [job for job in jobs if job["status"] != "rejected"]
        self.done = [job for job in jobs if job["status"] == "completed"]
        self.open = [job for job in jobs if job["status"] == "unfinished"]
        self.outages = [(node, start_s, min(back_s, end_s)) for node, start_s, back_s in outages if start_s <= end_s]
        self.failures = len(self.outages)
        self.powered: list[tuple[float, float]] = []
        """When nodes that are powered on demand were not off."""

    def power_on_demand(self, nodes: Sequence[int]) -> None:
        """Tell from the runs when nodes were powered on demand, and count them as gone at other times."""
        names = list(NODES)
        boot_s, idle_s, shutdown_s = (ON_DEMAND[key] for key in ("boot_s", "idle_s", "shutdown_s"))
        for node in nodes:
            runs = [(float(row["start_s"]), row["end"]) for row in self.rows if row["node"] == names[node]]
            periods: list[list[float]] = []
            for start_s, end_s in sorted(runs):
                if not periods or start_s > periods[-1][1] + idle_s:
                    periods.append([start_s - boot_s, end_s])
                periods[-1][1] = max(periods[-1][1], end_s)
            times = [(begin_s, min(end_s + idle_s + shutdown_s, self.end_s)) for begin_s, end_s in periods]
            self.powered += times
            bounds = [self.first_s, *(time for period in times for time in period), self.end_s]
            off = [(node, *pair) for pair in zip(bounds[::2], bounds[1::2], strict=True)]
            self.outages += [(node, start_s, back_s) for node, start_s, back_s in off if back_s > start_s]

    def left_s(self, job: dict[str, str]) -> float:
        """When the job left the system; the end of the log if it is in it then."""
        return float(job["completed_s"] or self.end_s)

    def counted(self, jobs: list[dict[str, str]]) -> list[dict[str, str]]:
        """The jobs whose times are counted; none if such a time is not known."""
        accepted = [job for job in jobs if job["status"] != "rejected"]
        done = [job for job in accepted if job["status"] == "completed"]
        return {"refuse": done if done == accepted else [], "horizon": accepted, "drop": done}[self.unfinished]

    def jct(self, job: dict[str, str]) -> float:
        """An unfinished job that is counted ends with the log."""
        return self.left_s(job) - float(job["arrival_s"])

    def wait(self, job: dict[str, str]) -> float:
        """A job that never ran waited until it left."""
        return min([start_s for start_s, _ in self.runs_of[job["job"]]], default=self.left_s(job)) - float(
            job["arrival_s"]
        )

    def running(self, job: dict[str, str]) -> float:
        """Length of the union of its runs."""
        length, until = 0.0, -math.inf
        for start_s, end_s in sorted(self.runs_of[job["job"]]):
            length += max(0.0, end_s - max(start_s, until))
            until = max(until, end_s)
        return length

    def queueing(self, job: dict[str, str]) -> float:
        return self.jct(job) - self.running(job)

    def bounded_slowdown(self, job: dict[str, str]) -> float:
        return max(1.0, self.jct(job) / max(self.running(job), 10.0))

    def fastest(self, task: Task) -> float:
        """Seconds on the fastest allowed type."""
        if not task.gpus:
            return task.work
        return min(task.work / SPEED[name] for name in task.gpu_types or SPEED)

    def ideal(self, job: dict[str, str]) -> float:
        """Critical path."""
        graph = self.source[job["job"]].graph
        longest = [0.0] * len(graph.tasks)
        for place, task in enumerate(graph.tasks):  # edges go from a task to a later one
            before = max([longest[edge.parent] for edge in graph.edges if edge.child == place], default=0.0)
            longest[place] = before + self.fastest(task)
        return max(longest)

    def area(self, job: dict[str, str]) -> float:
        return sum(self.fastest(task) * task.instances * task.gpus for task in self.source[job["job"]].graph.tasks)

    def stretch(self, job: dict[str, str]) -> float:
        return ratio(self.jct(job), self.ideal(job))

    def bounded_stretch(self, job: dict[str, str]) -> float:
        return max(1.0, self.jct(job) / max(self.ideal(job), 10.0))

    def rho(self, job: dict[str, str]) -> float:
        """JCT over the time on 1/N of the cluster, N the mean number of jobs in the system meanwhile."""
        begin, end = float(job["arrival_s"]), self.left_s(job)
        if end == begin:
            return 1.0
        together = sum(
            max(0.0, min(end, self.left_s(one)) - max(begin, float(one["arrival_s"]))) for one in self.accepted
        )
        alone = max(self.ideal(job), self.area(job) * together / (end - begin) / sum(GPUS.values()))
        return ratio(self.jct(job), alone)

    def held(self, rows: list[dict[str, Any]]) -> float:
        """GPU-seconds held."""
        return sum(float(row["held"]) * (row["end"] - float(row["start_s"])) for row in rows)

    def of_type(self, name: str) -> float:
        return self.held([row for row in self.rows if row["gpu_type"] == name])

    def up(self, name: str) -> float:
        """GPU-seconds on nodes of the type that were up."""
        names = list(NODES)
        down = [(names[node], back_s - start_s) for node, start_s, back_s in self.outages]
        return GPUS[name] * self.horizon_s - sum(NODES[node] * gone for node, gone in down if TYPE.get(node) == name)

    def kwh(self, name: str) -> tuple[float, float]:
        """Held and idle energy."""
        idle, busy = WATTS[name]
        return busy * self.of_type(name) / 3.6e6, idle * (self.up(name) - self.of_type(name)) / 3.6e6

    def held_and_up(self, others: Sequence[float] = ()) -> list[tuple[float, dict[str, float], dict[str, int]]]:
        """(length of time, GPUs held by node, GPUs up by node) between all moments at which something changes, in
        order.
        """
        moments = {self.first_s, self.end_s, *others}
        moments |= {time for row in self.rows for time in (float(row["start_s"]), row["end"])}
        moments |= {time for _, *outage in self.outages for time in outage}
        names, pieces = list(NODES), []
        for before, after in pairwise(sorted(time for time in moments if self.first_s <= time <= self.end_s)):
            middle = (before + after) / 2
            held = dict.fromkeys(NODES, 0.0)
            for row in self.rows:
                if float(row["start_s"]) < middle < row["end"]:
                    held[row["node"]] += float(row["held"])
            gone = {names[node] for node, start_s, back_s in self.outages if start_s < middle < back_s}
            pieces.append((after - before, held, {name: size * (name not in gone) for name, size in NODES.items()}))
        return pieces

    def energy_by_price(self) -> float:
        """Sum over time of the power x the price of that time, which repeats."""
        steps = [EVERY_S * step for step in range(math.ceil(self.end_s / EVERY_S) + 1)]
        cost, now_s = 0.0, self.first_s
        for length_s, held, up in self.held_and_up(steps):
            kw = sum(
                (WATTS[type_][1] * held[name] + WATTS[type_][0] * (up[name] - held[name])) / 1000
                for name, type_ in TYPE.items()
            )
            cost += kw * length_s / 3600 * PRICES[int((now_s + length_s / 2) // EVERY_S) % len(PRICES)]
            now_s += length_s
        return cost

    def useful(self, job: dict[str, str]) -> float:
        """GPU-seconds of a job that were not in vain."""
        rows = [row for row in self.rows if row["job"] == job["job"]]
        finished = sum(
            float(row["held"]) * (row["end"] - float(row["computing_s"] or row["start_s"]))
            for row in rows
            if row["outcome"] == "finished"
        )
        needed = self.area(job) if job["status"] == "completed" else 0.0
        return min(self.held(rows), max(finished, needed))

    def queue(self) -> list[tuple[float, int]]:
        """(length of time, waiting jobs) between all moments at which something changes."""
        stays = [(float(job["arrival_s"]), self.left_s(job), self.runs_of[job["job"]]) for job in self.accepted]
        moments = {self.first_s, self.end_s}
        for begin, end, runs in stays:
            moments |= {begin, end, *(time for run in runs for time in run)}
        times = sorted(moments)
        pieces = []
        for before, after in pairwise(times):
            middle = (before + after) / 2
            inside = [runs for begin, end, runs in stays if begin < middle < end]
            pieces.append(
                (after - before, sum(not any(start < middle < end for start, end in runs) for runs in inside))
            )
        return pieces

    def restarts(self) -> int:
        """Runs of a task after its first stop."""
        stops: dict[tuple[str, str], float] = {}
        for row in self.rows:
            if row["outcome"] in ("preempted", "failed"):
                key = row["job"], row["task"]
                stops[key] = min(stops.get(key, math.inf), row["end"])
        again = {
            row["run"] for row in self.rows if float(row["start_s"]) >= stops.get((row["job"], row["task"]), math.inf)
        }
        first_stopped = {
            row["run"]
            for row in self.rows
            if row["outcome"] in ("preempted", "failed") and row["end"] == stops[row["job"], row["task"]]
        }
        return len(again - first_stopped)

    def group(self, key: str, jobs: list[dict[str, str]]) -> float:
        """A metric of the jobs of one priority or tenant."""
        accepted = [job for job in jobs if job["status"] != "rejected"]
        names = {job["job"] for job in jobs}
        match key.split("."):
            case ["arrived"]:
                return len(jobs)
            case ["completed"]:
                return sum(job["status"] == "completed" for job in jobs)
            case ["rejected"]:
                return sum(job["status"] == "rejected" for job in jobs)
            case ["unfinished"]:
                return sum(job["status"] == "unfinished" for job in jobs)
            case ["gpu_hours"]:
                return self.held([row for row in self.rows if row["job"] in names]) / 3600
            case [of, part]:
                return self.spread(of, part, accepted)
        raise KeyError(key)

    def spread(self, of: str, part: str, jobs: list[dict[str, str]]) -> float:
        """Mean or percentile of a metric over the jobs that are counted."""
        jobs = self.counted(jobs)
        if not jobs:
            return math.nan
        values = sorted(
            getattr(self, {"jct_s": "jct", "wait_s": "wait", "queueing_s": "queueing"}.get(of, of))(job) for job in jobs
        )
        if part == "mean":
            return fmean(values)
        if part == "p50":
            return median(values)
        place = (len(values) - 1) * int(part.removeprefix("p")) / 100
        low = values[math.floor(place)]
        if math.isinf(values[math.ceil(place)]) and place == math.floor(place):
            return low
        return low + (values[math.ceil(place)] - low) * (place - math.floor(place))

    def metric(self, key: str) -> float | str | None:
        """The metric of this name, by its definition."""
        jobs, done, accepted, open_ = self.jobs, self.done, self.accepted, self.open
        reasons = [job["reason"] for job in jobs if job["status"] == "rejected"]
        counted = self.counted(jobs)
        pieces = self.queue()
        time = sum(length for length, _ in pieces)
        outcomes = {row["run"]: row["outcome"] for row in self.rows}
        kwh = [self.kwh(name) for name in GPUS]
        killed = ("time_limit", "cancelled")
        match key.split("."):
            case ["unfinished"]:
                return self.unfinished
            case ["jobs_arrived"]:
                return len(jobs)
            case ["jobs_completed"]:
                return len(done)
            case ["jobs_unfinished"]:
                return len(open_)
            case ["jobs_killed"]:
                return sum(reason in killed for reason in reasons)
            case [name] if name.startswith("rejected_"):
                return reasons.count(name.removeprefix("rejected_"))
            case ["blocking_rate"]:
                started = [job for job in open_ if self.runs_of[job["job"]]]
                return (sum(reason not in killed for reason in reasons) + len(started)) / len(jobs)
            case ["weighted_jct_s"]:
                weights = [float(job["weight"]) for job in counted]
                weighed = sum(w * self.jct(job) for w, job in zip(weights, counted, strict=True))
                return weighed / sum(weights) if counted else None
            case ["area_weighted_jct_s"]:
                weighed = sum(self.area(job) * self.jct(job) for job in counted)
                return weighed / sum(map(self.area, counted)) if counted else None
            case ["makespan_s"]:
                first_s = min([float(job["arrival_s"]) for job in counted], default=0.0)
                return max(map(self.left_s, counted)) - first_s if counted else None
            case ["horizon_s"]:
                return self.horizon_s
            case ["throughput_per_h"]:
                return len(done) / self.horizon_s * 3600
            case ["utilization"]:
                return sum(map(self.of_type, GPUS)) / (sum(GPUS.values()) * self.horizon_s)
            case ["peak_weighted_utilization"]:
                whole = sum(GPUS[name] * TFLOPS[name] for name in GPUS) * self.horizon_s
                return sum(self.of_type(name) * TFLOPS[name] for name in GPUS) / whole
            case ["availability"]:
                return sum(map(self.up, GPUS)) / (sum(GPUS.values()) * self.horizon_s)
            case ["gpu_allocation_ratio"]:
                shares = [
                    (s, sum(held.values()) / sum(up.values())) for s, held, up in self.held_and_up() if any(up.values())
                ]
                return sum(s * share for s, share in shares) / sum(s for s, _ in shares)
            case ["scheduling_occupancy_rate"]:
                return sum(map(self.of_type, GPUS)) / sum(map(self.up, GPUS))
            case ["gpu_node_fragmentation_ratio"]:
                partly = sum(
                    s * sum(1e-9 < held[name] < NODES[name] - 1e-9 for name in NODES)
                    for s, held, _ in self.held_and_up()
                )
                return partly / sum(s * sum(gpus > 0 for gpus in up.values()) for s, _, up in self.held_and_up())
            case ["goodput"]:
                return sum(map(self.useful, jobs)) / self.held(self.rows)
            case ["mean_queue_length"]:
                return sum(length * waiting for length, waiting in pieces) / time
            case ["max_queue_length"]:
                return max(waiting for _, waiting in pieces)
            case ["mean_jobs_in_system"]:
                return sum(self.left_s(job) - float(job["arrival_s"]) for job in accepted) / self.horizon_s
            case ["runs"]:
                return len(outcomes)
            case ["preemptions"]:
                return list(outcomes.values()).count("preempted")
            case ["failures"]:
                return list(outcomes.values()).count("failed")
            case ["restarts"]:
                return self.restarts()
            case ["node_failures"]:
                return self.failures
            case ["energy_kwh"]:
                return sum(map(sum, kwh))
            case ["energy_allocated_kwh"]:
                return sum(held for held, _ in kwh)
            case ["energy_idle_kwh"]:
                return sum(idle for _, idle in kwh)
            case ["joules_per_job"]:
                return sum(map(sum, kwh)) * 3.6e6 / len(done) if counted and done else None
            case ["jain_fairness_index"]:
                by_tenant = [
                    self.held(
                        [
                            row
                            for row in self.rows
                            if row["job"] in {job["job"] for job in accepted if job["tenant"] == name}
                        ]
                    )
                    for name in {job["tenant"] for job in accepted}
                ]
                return sum(by_tenant) ** 2 / (len(by_tenant) * sum(x * x for x in by_tenant))
            case ["max_ftf"]:
                return max(map(self.rho, counted)) if counted else None
            case ["unfair_job_fraction"]:
                return sum(self.rho(job) > 1 + 1e-9 for job in counted) / len(counted) if counted else None
            case ["deadline_hit_rate"]:
                due = [job for job in jobs if job["deadline_s"]]
                known = [job for job in due if job["status"] != "unfinished" or float(job["deadline_s"]) < self.end_s]
                return sum(float(job["completed_s"] or math.inf) <= float(job["deadline_s"]) for job in known) / len(
                    known
                )
            case ["on_demand", part]:
                hours = sum(end_s - begin_s for begin_s, end_s in self.powered) / 3600
                use = {"node_hours": hours, "boots": len(self.powered), "cost": hours * ON_DEMAND["price_per_h"]}
                return use[part] if self.powered else None
            case [of, part]:
                return self.spread(of, part, accepted)
        raise KeyError(key)

    def gpu(self, name: str, key: str) -> float:
        """A metric of a GPU type."""
        return {
            "gpus": GPUS[name],
            "utilization": self.of_type(name) / (GPUS[name] * self.horizon_s),
            "gpu_hours": self.of_type(name) / 3600,
            "energy_kwh": sum(self.kwh(name)),
        }[key]


def equal(one: float | str | None, other: float | str | None) -> bool:
    """Equal but for rounding. None stands for no number."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    unknown = [value is None or not math.isfinite(value) for value in (one, other)]
    if any(unknown):
        return all(unknown)
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)  # type: ignore[arg-type]


def differing(second: Second, metrics: dict[str, Any], decided: tuple[float, int]) -> list[str]:
    """All metrics of the glossary that are not what their definition says."""
    wrong = []
    for name, *_ in glossary():
        group, _, part = name.partition("[...].")
        if not part:
            seconds, decisions = decided
            mine = 1e6 * seconds / decisions if name == "decision_time_us" and decisions else None
            mine = mine if name == "decision_time_us" else second.metric(name)
            if not equal(mine, metrics.get(name)):
                wrong.append(f"{name}: {metrics.get(name)}, not {mine}")
            continue
        if group == "gpu":
            values = {f"gpu[{type_}].{part}": second.gpu(type_, part) for type_ in GPUS}
        else:
            groups = defaultdict(list)
            for job in second.jobs:
                groups[job[group]].append(job)
            label = (lambda text: str(int(float(text)))) if group == "priority" else str
            values = {f"{group}[{label(value)}].{part}": second.group(part, jobs) for value, jobs in groups.items()}
        wrong += [
            f"{key}: {metrics.get(key)}, not {mine}"
            for key, mine in values.items()
            if not equal(mine, metrics.get(key))
        ]
    return wrong


def read(folder: Path, name: str) -> list[dict[str, str]]:
    with gzip.open(folder / name, "rt") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("policy", ["las", "fifo-fit", "killing.py:Killing"])
@pytest.mark.parametrize("seed", [4, 5])
def test_every_metric_of_a_run_folder_is_what_its_definition_says(tmp_path, monkeypatch, policy, seed) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)
    Path("killing.py").write_text(POLICY)
    Path("outages.csv").write_text("node,start_s,end_s\n" + "".join(f"{a},{b},{c}\n" for a, b, c in OUTAGES))
    jobs = made(seed)
    write_jobs(Path("jobs.jsonl"), jobs)
    fine("eval", "--config", "config.yaml", "--algo", policy, "--out", "out", "--no-plots")
    [folder] = Path("out").iterdir()
    run = json.loads((folder / "runs.jsonl").read_text())
    timing = json.loads((folder / "timing.jsonl").read_text())
    tables = read(folder, "jobs.csv.gz"), read(folder, "tasks.csv.gz")
    end_s = max(
        float(row[name] or 0) for table, name in zip(tables, ("completed_s", "end_s"), strict=True) for row in table
    )
    second = Second(*tables, jobs, max(end_s, *(back_s for *_, back_s in OUTAGES if back_s <= end_s)))
    metrics = run["metrics"] | {"decision_time_us": timing["decision_time_us"]}
    assert differing(second, metrics, (timing["decision_s"], timing["decisions"])) == []
    assert (metrics["jobs_killed"] > 0) == ("killing" in policy)
    assert metrics["rejected_too_large"] == metrics["rejected_no_such_gpu"] == 1


@pytest.mark.parametrize("unfinished", ["refuse", "horizon", "drop"])
@pytest.mark.parametrize("until_s", [40.0, 100.0, 155.0, 230.0])
def test_every_metric_of_a_run_that_was_cut_off_is_what_its_definition_says(tmp_path, until_s, unfinished) -> None:
    (tmp_path / "outages.csv").write_text("node,start_s,end_s\n" + "".join(f"{a},{b},{c}\n" for a, b, c in OUTAGES))
    types = {name: gpu_type(name) for name in GPUS}
    nodes = [Node(name, types.get(TYPE.get(name, "")), gpus, 32, 256) for name, gpus in NODES.items()]
    jobs = made(6)
    kernel = ClusterKernel(Cluster(tuple(nodes)), jobs, Models(failures=(FailureLog(str(tmp_path / "outages.csv")),)))
    schedule = kernel.run(POLICIES.create("las"), until_s)
    tables = [list(csv.DictReader(to_csv(table(schedule)).splitlines())) for table in (jobs_table, runs_table)]
    metrics = summarize(schedule, unfinished=unfinished).to_dict()
    assert metrics["jobs_unfinished"] > 3
    assert differing(Second(*tables, jobs, until_s, unfinished=unfinished), metrics, (0.0, 0)) == []


def test_every_metric_of_a_cluster_whose_nodes_are_powered_on_demand_is_what_its_definition_says(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, scale in (("prices.csv", 1.0), ("carbon.csv", 1000.0)):
        times = (f"2026-03-01T00:0{step}:00Z,{scale * abs(PRICES[step])}" for step in range(3))
        Path(name).write_text("\n".join(("time,value", *times)) + "\n")
    Path("prices.csv").write_text(Path("prices.csv").read_text().replace(",0.25", ",-0.25"))
    config = CONFIG.replace("gpus: 2, cpus: 16, memory_gb: 64}", f"gpus: 2, cpus: 16, on_demand: {ON_DEMAND}}}")
    config = config.replace("failures: [{kind: failure_log, path: outages.csv}]", "metrics: [A, B]")
    Path("config.yaml").write_text(
        config.replace("[A, B]", "['energy_cost[series=prices.csv]', 'carbon_kg[series=carbon.csv]']")
    )
    jobs = [replace(job, arrival_s=6 * job.arrival_s, deadline_s=None) for job in made(8)]
    jobs[3] = replace(jobs[3], deadline_s=jobs[3].arrival_s + 500)
    write_jobs(Path("jobs.jsonl"), jobs)
    words = ["eval", "--config", "config.yaml", "--algo", "fifo-fit", "--out", "out", "--no-plots"]
    fine(*words)
    [folder] = Path("out").iterdir()
    metrics = json.loads((folder / "runs.jsonl").read_text())["metrics"]
    tables = read(folder, "jobs.csv.gz"), read(folder, "tasks.csv.gz")
    end_s = max(float(row["completed_s"] or 0) for row in tables[0])
    second = Second(*tables, jobs, end_s, outages=())
    second.power_on_demand((1, 2))
    assert len(second.powered) > 3
    assert differing(second, metrics, (0.0, 0)) == []
    cost = {name: value for name, value in metrics.items() if name.startswith(("energy_cost", "carbon_kg"))}
    assert len(cost) == 2
    positive = tuple(map(abs, PRICES))
    assert equal(second.energy_by_price(), next(value for name, value in cost.items() if "energy" in name))
    monkeypatch.setitem(globals(), "PRICES", positive)
    assert equal(second.energy_by_price(), next(value for name, value in cost.items() if "carbon" in name))
