"""Random sites with rules, played by every policy, and each log judged by a second reading of the rules.

    python scripts/check_site.py [--cases 500] [--from SEED] [--policy NAME ...] [--json]

Case n is drawn from seed n: up to six nodes with features, some of them powered on demand, partitions, limits of
accounts, users and QOS, reservations that are over, under way or to come, licences, drains and outages with and without
an end; up to 25 jobs with constraints, reservations, licences, dependencies, begin times, arrays, gangs and limits,
some of which can never start. Reservations may repeat, become known late, or attract jobs; jobs may name nodes, exclude
nodes, or want them alone. Operators suspend some jobs for a while.
All times are multiples of ten minutes, so that equal times are the rule. The policies take turns. Without ``--from``
the first seed is new each time, and printed.

The judge shares no code with the kernel: it reads rows of the log against docs/reference/schedulers.md ("Five rules
bind every policy") and the rules that bind ``slurm-multifactor`` alone: limits, and nodes that are not shared. A run
must end, and a job that is rejected at once or left over must be one that could not start. Where the compiled engine
plays a site without restrictions, its log must be the kernel's.
Exits with 1 if anything differs.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, NamedTuple

import command
import numpy as np
from stress import specs

from dagsim.errors import ConfigError, DagsimError
from dagsim.model import (
    Cluster,
    Demand,
    Job,
    JobSuspension,
    Kind,
    Node,
    OnDemand,
    PowerState,
    Request,
    Task,
    TaskGraph,
    gpu_type,
)
from dagsim.model.log import RUN_ENDS, RejectReason, Schedule
from dagsim.model.queues import Caps, NodeOutage, NodePartition, NodeReservation, Qos, QueueNode, QueueTree
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.testing import violations

STEP_S = 600.0
_OUTAGES: tuple[Literal["drain", "down"], ...] = ("drain", "down")
_CONSTRAINTS = ("", "", "", "", "a", "b", "a|b", "a&b", "!a", "(a|b)&!c", "a*2", "[a|b]", "b*1&!c", "nothing")
SKIPPED = frozenset({"recorded", "rollout", "search", "exec", "batsim", "pollux", "sia", "optimus"})
"""Policies that need a program, a log or elastic jobs, or take minutes."""


class Site(NamedTuple):
    """A drawn case."""

    cluster: Cluster
    queues: QueueTree
    jobs: list[Job]


def drawn(seed: int) -> Site:
    """Draw a case from its seed alone."""
    rng, more = np.random.default_rng([7, seed]), np.random.default_rng([8, seed])
    nodes = tuple([_node(rng, at) for at in range(int(rng.integers(1, 7)))])
    names = [node.name for node in nodes]

    def some(least: int = 1) -> tuple[str, ...]:
        return tuple(rng.permutation(names)[: int(rng.integers(least, len(names) + 1))].tolist())

    def period() -> tuple[float, float]:
        start_s = STEP_S * float(rng.integers(0, 30))
        return start_s, start_s + STEP_S * float(rng.integers(1, 12))

    restricted = rng.random() < 0.9
    queues = QueueTree()
    if restricted:
        parts = [
            NodePartition(
                f"p{at}", some(), max_time_s=STEP_S * float(rng.integers(6, 30)) if rng.random() < 0.3 else None,
                default_time_s=STEP_S * 4 if rng.random() < 0.3 else None, exclusive=bool(rng.random() < 0.1),
                preempt=str(rng.choice(["off", "requeue", "cancel"])) if rng.random() < 0.2 else "off",  # type: ignore[arg-type]
                tier=int(rng.integers(1, 3)), qos="q1" if rng.random() < 0.2 else "",
            )
            for at in range(int(rng.integers(0, 4)))
        ]  # fmt: skip
        qos = [Qos("q0", limits=_caps(rng)), Qos("q1", user_limits=_caps(rng), account_limits=_caps(rng))]
        tree = [QueueNode("x", limits=_caps(rng), user_limits=_caps(rng)), QueueNode("y", limits_of={"u0": _caps(rng)})]
        drains = [
            NodeOutage(some(), at, None if rng.random() < 0.5 else end, kind)
            for kind in _OUTAGES
            for _ in range(int(rng.random() < 0.3))
            for at, end in [period()]
        ]
        reservations = [NodeReservation(f"r{at}", some(), *period()) for at in range(int(rng.integers(0, 4)))]
        reservations = [_variant(more, period) for period in reservations]
        licences = {"cad": int(rng.integers(1, 4))} if rng.random() < 0.6 else {}
        queues = QueueTree(tuple(tree), tuple(parts), tuple(qos), tuple(reservations), tuple(drains), licences=licences)
    jobs: list[Job] = []
    arrival_s = 0.0
    for at in range(int(rng.integers(5, 26))):
        arrival_s += STEP_S * float(rng.integers(0, 3))
        jobs.append(_choosy(more, _job(rng, at, arrival_s, queues, jobs), names if restricted else []))
    return Site(Cluster(nodes), queues, jobs)


def _variant(rng: np.random.Generator, period: NodeReservation) -> NodeReservation:
    """Draw a reservation that repeats, becomes known late, or attracts jobs, of the same nodes and times."""
    kind = rng.choice(["repeats", "late", "magnetic", "plain", "plain", "plain"])
    if kind == "repeats":
        return replace(period, every_s=period.end_s - period.start_s + STEP_S * float(rng.integers(0, 60)))
    if kind == "late":
        return replace(period, known_s=STEP_S * float(rng.integers(0, int(period.end_s / STEP_S))))
    whose: Any = ({"accounts": ("x",)}, {"users": ("u0",)}, {})[int(rng.integers(3))]
    return replace(period, magnetic=True, **whose) if kind == "magnetic" else period


def _choosy(rng: np.random.Generator, job: Job, names: list[str]) -> Job:
    """Draw a job that names nodes, excludes nodes or shares nodes with nobody; mostly the same job."""
    kind = rng.choice(["nodes", "excluded", "exclusive_user", *[""] * 12])
    some = tuple(rng.permutation(names)[: int(rng.integers(1, 3))].tolist())
    if not kind or not names:
        return job
    changed: dict[str, Any] = {str(kind): True if kind == "exclusive_user" else some}
    return replace(job, request=replace(job.request or Request(), **changed))


def _node(rng: np.random.Generator, at: int) -> Node:
    kind = rng.choice(["T4", "V100-16", ""])
    gpus = int(rng.integers(1, 5)) if kind else 0
    features = tuple(name for name in "abc" if rng.random() < 0.5)
    gpu = gpu_type(str(kind)) if gpus else None
    return Node(f"n{at}", gpu, gpus, 8.0, 32.0, features=features)


def powered(site: Site, seed: int) -> Site:
    """Return the site with some nodes powered on demand, in about every other case."""
    rng = np.random.default_rng([8, seed])
    share = 0.6 if rng.random() < 0.5 else 0.0
    nodes = [replace(node, on_demand=_on_demand(rng) if rng.random() < share else None) for node in site.cluster.nodes]
    return site._replace(cluster=Cluster(tuple(nodes)))


def suspended(site: Site, seed: int) -> Site:
    """Return the site with some jobs suspended for a while, in about every third case without nodes on demand."""
    rng = np.random.default_rng([9, seed])
    if not site.queues.partitions or any(node.on_demand for node in site.cluster.nodes) or rng.random() < 0.6:
        return site
    chosen = rng.permutation(len(site.jobs))[: int(rng.integers(1, 6))].tolist()
    starts_s = [site.jobs[at].arrival_s + STEP_S * float(rng.integers(1, 12)) for at in chosen]
    suspensions = [
        JobSuspension(site.jobs[at].id, start_s, start_s + STEP_S * float(rng.integers(1, 8)))
        for at, start_s in zip(chosen, starts_s, strict=True)
    ]
    return site._replace(queues=replace(site.queues, suspensions=tuple(suspensions)))


def _on_demand(rng: np.random.Generator) -> OnDemand:
    boots_s = tuple([STEP_S * float(rng.integers(0, 4)) for _ in range(int(rng.integers(1, 3)))])
    idle_s = None if rng.random() < 0.2 else STEP_S * float(rng.integers(0, 4))
    trigger = "pending" if rng.random() < 0.3 else "placed"
    shutdown_s, up = STEP_S * float(rng.integers(0, 2)), bool(rng.random() < 0.3)
    return OnDemand(boots_s, idle_s, shutdown_s, trigger, STEP_S, up)  # type: ignore[arg-type]


def _caps(rng: np.random.Generator) -> Caps:
    if rng.random() < 0.6:
        return Caps()
    which = rng.choice(["gpus", "cpus", "memory_gb", "jobs", "type"])
    if which == "type":
        return Caps(gpus_of={"T4": float(rng.integers(0, 4))})
    most: dict[str, Any] = {str(which): int(rng.integers(1, 5)) * (1 if which in ("gpus", "jobs") else 4)}
    return Caps(**most)


def _job(rng: np.random.Generator, at: int, arrival_s: float, queues: QueueTree, earlier: list[Job]) -> Job:
    def maybe(chance: float) -> bool:
        return bool(queues.partitions or queues.qos) and rng.random() < chance

    work_s = STEP_S * float(rng.integers(1, 10))
    gpus = int(rng.integers(0, 3)) if rng.random() < 0.8 else 4
    gang = rng.random() < 0.25
    demand = Demand(gpus, float(rng.integers(0, 5)) if gpus else float(rng.integers(1, 9)), float(rng.integers(0, 12)),
                    ("T4",) if gpus and rng.random() < 0.2 else None)  # fmt: skip
    limit_s = work_s + STEP_S * float(rng.integers(0, 4)) if rng.random() < 0.85 else None
    tasks = [
        Task(f"t{number}", work_s, int(rng.integers(1, 4)) if gang else 1, gang, *demand, estimate=limit_s)
        for number in range(2 if rng.random() < 0.1 else 1)
    ]
    graph = TaskGraph.of(tasks, {"t1": ["t0"]}) if len(tasks) > 1 else TaskGraph(tuple(tasks))
    parts = [part.name for part in queues.partitions]
    after: list[str] = []
    if maybe(0.2) and earlier:
        after = [("start:" if rng.random() < 0.3 else "") + earlier[int(rng.integers(len(earlier)))].id]
        after += ["start:" + earlier[0].id + "+1200"] if rng.random() < 0.2 else []
    array = f"arr{at % 2}" if maybe(0.15) else ""
    request = Request(
        constraint=str(rng.choice(_CONSTRAINTS)) if maybe(0.5) else "",
        partitions=tuple(parts[:2]) if len(parts) > 1 and maybe(0.2) else (),
        reservation=f"r{int(rng.integers(3))}" if maybe(0.15) else "",
        licences=(("cad", int(rng.integers(1, 4))),) if maybe(0.2) else (),
        exclusive=maybe(0.05),
        array=array,
        array_limit=1 + at % 2 if array else None,
        after=tuple(after),
        after_one=bool(after and rng.random() < 0.3),
        begin_s=STEP_S * float(rng.integers(0, 6)) if maybe(0.15) else None,
    )
    return Job(
        f"j{at}", graph, arrival_s, priority=float(rng.integers(3)), tenant=str(rng.choice(["x", "y"])),
        user=f"u{int(rng.integers(2))}", account=str(rng.choice(["x", "y", ""])), qos=str(rng.choice(["q0", "q1", ""])),
        partition=str(rng.choice([*parts, "elsewhere"])) if parts else "", request=request if request else None,
    )  # fmt: skip


# The rules, once more.


class Start(NamedTuple):
    """A start: a job, its task, the nodes, and when."""

    job: Job
    task: Task
    nodes: list[int]
    now: float
    eligible: set[str]
    """The nodes on which it may be."""
    counts: dict[str, int]
    """How many of its nodes must have a feature."""

    @property
    def names(self) -> list[str]:
        return [f"n{node}" for node in self.nodes]

    @property
    def where(self) -> str:
        return f"{self.now:g} s: {self.job.id} starts on {self.names}"


@dataclass
class Judge:
    """Reads a log row by row."""

    site: Site
    policy: str
    faults: list[str] = field(default_factory=list)
    first_s: dict[str, float] = field(default_factory=dict)
    """First start of each job, or when it left without one."""
    left_s: dict[str, float] = field(default_factory=dict)
    runs: dict[int, tuple[Job, Task, list[tuple[int, int]]]] = field(default_factory=dict)
    """By run: its job, its task, and its nodes with instances."""

    def read(self, schedule: Schedule) -> list[str]:
        """Return what breaks a rule."""
        rows = schedule.log.rows().tolist()
        nodes: dict[int, dict[int, int]] = defaultdict(dict)
        for kind, _, _, _, run, node, instances, *_ in rows:
            if kind in (Kind.STARTED, Kind.ALLOCATED):
                nodes[run][node] = instances
        is_up = {at: not node.on_demand or node.on_demand.up for at, node in enumerate(self.site.cluster.nodes)}
        for kind, now, job, task, run, node, _, _, value in rows:
            if kind == Kind.POWER:
                is_up[node] = value == PowerState.UP
            elif kind == Kind.STARTED and not is_up[node]:
                self.faults.append(f"{now:g} s: {self.site.jobs[job].id} runs on n{node}, which is off or booting")
            # the rules of a start hold when a run takes its nodes, even if they have to boot first
            if kind in (Kind.STARTED, Kind.ALLOCATED) and run not in self.runs:
                own = self.site.jobs[job]
                self.first_s.setdefault(own.id, now)
                self.runs[run] = own, own.tasks[task], [*nodes[run].items()]
                self._start(Start(own, own.tasks[task], [*nodes[run]], now, *self.eligible(own, own.tasks[task])))
            elif kind in (*RUN_ENDS, Kind.RELEASED):
                self.runs.pop(run, None)
            elif kind == Kind.REJECTED and now == self.site.jobs[job].arrival_s:  # it never came: nobody waits for it
                self.first_s[self.site.jobs[job].id] = self.left_s[self.site.jobs[job].id] = -inf
                self._refused(self.site.jobs[job], now, int(value))
            elif kind in (Kind.COMPLETED, Kind.REJECTED):
                self.first_s.setdefault(self.site.jobs[job].id, now)
                self.left_s[self.site.jobs[job].id] = now
        self._left_over(schedule)
        return self.faults

    def _start(self, start: Start) -> None:
        checks: list[Callable[[Start], Iterator[str]]] = [
            self._features,
            self._closed_nodes,
            self._own_reservation,
            self._licences,
            self._conditions,
        ]
        if self.policy.startswith("slurm"):
            checks += [self._limits, self._sharing]
        self.faults += [f"{start.where}{broken}" for check in checks for broken in check(start)]

    def _features(self, start: Start) -> Iterator[str]:
        """Counts of nodes with a feature, and parts of a constraint that all nodes satisfy."""
        request = start.job.request or Request()
        held = [self.site.cluster.nodes[node].features for node in start.nodes]
        for feature, least in start.counts.items():
            if sum(feature in features for features in held) < least:
                yield f", which has fewer than {least} nodes with {feature}"
        alike = any(all(way in features for features in held) for way in _ways(request))
        if request.constraint.startswith("[") and self.features_count and not alike:
            yield f", which do not all satisfy the same part of {request.constraint}"

    def _closed_nodes(self, start: Start) -> Iterator[str]:
        """Nodes outside of the partition or the constraint, drained ones, and those reserved for others."""
        request, queues, now = start.job.request or Request(), self.site.queues, start.now
        ends_s = now + self.limit_s(start.job, start.task)
        has_own = any(period.name == request.reservation for period in queues.reservations)
        for name in start.names:
            if name not in start.eligible:
                yield ", outside its partition or constraint"
            for period in queues.reservations:
                if name not in period.nodes or period.name == request.reservation or now < (period.known_s or 0.0):
                    continue
                welcome = not has_own and self._attracts(period, start.job)
                for start_s, end_s in period.times():
                    if now < end_s and ends_s > start_s and not (welcome and start_s <= now):
                        yield f" until {ends_s:g} s, in {period.name} of others"
            for drain in queues.outages:
                if name in drain.nodes and drain.start_s <= now < (drain.end_s or inf):
                    yield ", which is drained or down"

    def _own_reservation(self, start: Start) -> Iterator[str]:
        request = start.job.request or Request()
        for period in self.site.queues.reservations:
            if period.name == request.reservation:
                held_now = any(start_s <= start.now < end_s for start_s, end_s in period.times())
                if not held_now or any(name not in period.nodes for name in start.names):
                    yield ", outside its reservation"

    def _licences(self, start: Start) -> Iterator[str]:
        requests = [other.request or Request() for other, _, _ in self.runs.values()]
        for name, most in self.site.queues.licences.items():
            used = sum(count for one in requests for licence, count in one.licences if licence == name)
            if used > most:
                yield f": {used} licences {name} of {most}"

    def _conditions(self, start: Start) -> Iterator[str]:
        """The begin time, other jobs, and the limit of the job's array."""
        job, request = start.job, start.job.request or Request()
        if request.begin_s is not None and start.now < job.arrival_s + request.begin_s:
            yield ", before its begin time"
        if not self.conditions_met(request, start.now):
            yield f", before {request.after}"
        if request.array_limit:
            inside = [other for other in self.site.jobs if other.request and other.request.array == request.array
                      and other.id in self.first_s and other.id not in self.left_s]  # fmt: skip
            if len(inside) > request.array_limit:
                yield f": {len(inside)} tasks of its array, at most {request.array_limit}"

    @staticmethod
    def _attracts(period: NodeReservation, job: Job) -> bool:
        """True if a job may use a magnetic reservation without asking for it."""
        in_accounts, in_users = not period.accounts or job.account in period.accounts, job.user in period.users
        return period.magnetic and in_accounts and (in_users or not period.users)

    def _sharing(self, start: Start) -> Iterator[str]:
        """Nobody shares a node with an exclusive job, and only jobs of the same user with a job that wants that."""
        job, here = start.job, {*start.nodes}
        for other, _, held in self.runs.values():
            if other is not job and here & {node for node, _ in held}:
                alone = self._alone(job) or self._alone(other)
                by_user = any(one.request and one.request.exclusive_user for one in (job, other))
                if alone or (by_user and job.user != other.user):
                    yield f", on a node with {other.id}, although one of them shares no node"

    def _alone(self, job: Job) -> bool:
        parts = {part.name: part for part in self.site.queues.partitions}
        part = parts.get(job.partition) or next(iter(parts.values()), NodePartition("all"))
        several = bool(job.request and job.request.partitions)  # where it starts, the log does not say
        return bool(job.request and job.request.exclusive) or (part.exclusive and not several)

    def _refused(self, job: Job, now: float, reason: int) -> None:
        """A job that is rejected as too large could not start on the empty site, while all nodes are there."""
        if reason in (RejectReason.TOO_LARGE, RejectReason.NO_SUCH_GPU) and self.could_start(job, now, ()):
            self.faults.append(f"{now:g} s: {job.id} is rejected, although it could start")

    def eligible(self, job: Job, task: Task) -> tuple[set[str], dict[str, int]]:
        """The nodes on which instances of a task may start, and how many of a gang's nodes must have a feature.

        If only nodes of several GPU types could satisfy the counts, each node has a counted feature instead.
        """
        nodes = self.allowed(job)
        if job.request and len(job.request.nodes) >= (task.instances if task.gang else 1):  # no room for others
            nodes &= {*job.request.nodes}
        for period in self.site.queues.reservations:
            nodes &= {*period.nodes} if job.request and period.name == job.request.reservation else {*self._names}
        counted = re.findall(r"(\w+)\*(\d+)", job.request.constraint) if task.gang and job.request else []
        counts = {feature: int(least) for feature, least in counted if self.features_count}
        if counts and not self._fits(task, nodes, counts) and self._fits(task, nodes, counts, mixed=True):
            return {name for name in nodes if {*counts} & {*self._node(name).features}}, {}
        return nodes, counts

    @property
    def features_count(self) -> bool:
        """True if any node has a feature: else constraints mean nothing."""
        return any(node.features for node in self.site.cluster.nodes)

    def _node(self, name: str) -> Node:
        return next(node for node in self.site.cluster.nodes if node.name == name)

    def limit_s(self, job: Job, task: Task) -> float:
        """The time limit: the user's, else the default of the partition, else the estimate; at most the partition's."""
        parts = {part.name: part for part in self.site.queues.partitions}
        named = [parts[name] for name in (job.request or Request()).partitions or (job.partition,) if name in parts]
        # of several partitions, the one that allows the longest runs, and the first of equals
        longest = sorted(named or list(parts.values())[:1], key=lambda part: -(part.max_time_s or inf))
        part = longest[0] if longest else NodePartition("all")
        limit_s = task.estimate
        if limit_s is None:
            limit_s = task.work if part.default_time_s is None else part.default_time_s
        return min(limit_s, part.max_time_s or inf)

    def allowed(self, job: Job) -> set[str]:
        """Nodes of the job's partitions that satisfy its constraint."""
        request, parts = job.request or Request(), {part.name: part for part in self.site.queues.partitions}
        every = {node.name for node in self.site.cluster.nodes}
        named = [name for name in request.partitions or (job.partition,) if name in parts] or list(parts)[:1]
        nodes = ({name for part in named for name in parts[part].nodes} if parts else every) - {*request.excluded}
        if not request.constraint or not self.features_count:
            return nodes
        text = re.sub(r"\w+\*\d+", "True", request.constraint).replace("[", "(").replace("]", ")")
        text = text.replace("&", " and ").replace("|", " or ").replace("!", " not ")
        features = {node.name: node.features for node in self.site.cluster.nodes}
        words = ("a", "b", "c", "nothing")
        return {name for name in nodes if eval(text, {}, {word: word in features[name] for word in words})}

    def conditions_met(self, request: Request, now: float) -> bool:
        """True if the jobs that it depends on have left or started; with ``after_one`` one of them."""
        met = []
        for text in request.after:
            id, _, delay = text.removeprefix("start:").partition("+")
            since_s = (self.first_s if text.startswith("start:") else self.left_s).get(id, inf)
            met.append(since_s + float(delay or 0) <= now)
        return not met or (any(met) if request.after_one else all(met))

    def _limits(self, _: Start) -> Iterator[str]:
        """Compare what runs with the limits of accounts, users, QOS and partitions' QOS."""
        queues, used = self.site.queues, defaultdict[tuple[str, ...], Counter[str]](Counter)
        parts, qos = {part.name: part for part in queues.partitions}, {one.name: one for one in queues.qos}
        caps: dict[tuple[str, ...], Caps] = {}
        for job, task, nodes in self.runs.values():
            if (job.request and (job.request.exclusive or job.request.partitions)) or not qos:
                continue
            part = parts.get(job.partition) or next(iter(parts.values()), NodePartition(""))
            account, own = job.account or job.tenant, job.qos if job.qos in qos else next(iter(qos))
            count = sum(instances for _, instances in nodes)
            gpu = self.site.cluster.nodes[nodes[0][0]].gpu
            amounts = {
                "gpus": task.gpus * count,
                "cpus": task.cpus * count,
                "memory_gb": task.memory_gb * count,
                "jobs": 1,
            }
            if gpu is not None and task.gpus:
                amounts[f"gpus of {gpu.name}"] = task.gpus * count
            node = next(node for node in queues.tree if node.name == account)
            holders = {
                ("account", account): node.limits,
                ("user", account, job.user): node.limits_of.get(job.user) or node.user_limits,
            }
            for name in {own, part.qos or own}:
                holders[("qos", name)] = qos[name].limits
                holders[("qos user", name, job.user)] = qos[name].user_limits
                holders[("qos account", name, account)] = qos[name].account_limits
            for holder, limit in holders.items():
                caps[holder] = limit
                used[holder].update(amounts)
        for holder, limit in caps.items():
            most = {name: getattr(limit, name) for name in ("gpus", "cpus", "memory_gb", "jobs")}
            most |= {f"gpus of {name}": count for name, count in limit.gpus_of.items()}
            for name, count in most.items():
                if count is not None and used[holder][name] > count + 1e-9:
                    yield f": {holder} holds {used[holder][name]:g} {name} of {count:g}"

    def _left_over(self, schedule: Schedule) -> None:
        """A job that is neither done nor rejected must wait for something that cannot come."""
        now, arrived = schedule.ended_s, len(schedule.jobs)
        left = [job for job in self.site.jobs[:arrived] if job.id not in self.left_s]
        if arrived < len(self.site.jobs):
            self.faults.append(f"{len(self.site.jobs) - arrived} jobs never arrived")
        if left and self.runs:
            self.faults.append(f"the log ends at {now:g} s while {next(iter(self.runs.values()))[0].id} runs")
        for job in left:
            request = job.request or Request()
            waits_for = {text.removeprefix("start:").partition("+")[0] for text in request.after} & {
                one.id for one in left
            }
            array = [
                one
                for one in left
                if one is not job and one.request and request.array and one.request.array == request.array
            ]
            if not waits_for and not array and self.could_start(job, now, self.site.queues.outages):
                self.faults.append(f"{now:g} s: {job.id} is left over, although it could start")

    def could_start(self, job: Job, now: float, outages: tuple[NodeOutage, ...]) -> bool:
        """True if the idle nodes that are not gone for good have room for each of its tasks."""
        request, queues = job.request or Request(), self.site.queues
        gone = {name for outage in outages if outage.end_s is None for name in outage.nodes}
        for period in queues.reservations:
            if period.name == request.reservation:
                gone |= {*self._names} - ({*period.nodes} if now < period.times()[-1][1] else set())
        if any(count > queues.licences.get(name, inf) for name, count in request.licences):
            return False
        ways = _ways(request) if request.constraint.startswith("[") and self.features_count else [""]
        for task in job.tasks:
            nodes, counts = self.eligible(job, task)
            alike = [{name for name in nodes - gone if not way or way in self._node(name).features} for way in ways]
            if not any(self._fits(task, names, counts) for names in (alike if task.gang else [nodes - gone])):
                return False
        return True

    @property
    def _names(self) -> list[str]:
        return [node.name for node in self.site.cluster.nodes]

    def _fits(self, task: Task, names: set[str], counts: dict[str, int], mixed: bool = False) -> bool:
        """True if nodes of one type have room for a start of the task when they are idle; ``mixed``: of any types.

        With counts, each instance of a gang takes a node, and so many of its nodes have the feature.
        """
        rooms: Counter[str] = Counter()
        having: Counter[tuple[str, str]] = Counter()
        for node in self.site.cluster.nodes:
            name = node.gpu.name if node.gpu is not None else ""
            if node.name not in names or (task.gpus and not name) or (task.gpu_types and name not in task.gpu_types):
                continue
            sizes = [(node.gpus, task.gpus), (node.cpus, task.cpus), (node.memory_gb, task.memory_gb)]
            room = min(int(size // asked) for size, asked in sizes if asked)
            name = "any" if mixed else name
            rooms[name] += min(room, 1) if counts else room
            having.update((name, feature) for feature in node.features if room)
        wanted = task.instances if task.gang else 1
        return any(
            room >= wanted
            and all(wanted >= least and having[name, feature] >= least for feature, least in counts.items())
            for name, room in rooms.items()
        )


def _ways(request: Request) -> list[str]:
    return request.constraint.strip("[]").split("|")


def faults(spec: str, seed: int) -> list[str] | None:
    """Describe what goes wrong when the policy plays the case; None if it cannot play it."""
    site = suspended(powered(drawn(seed), seed), seed)
    scenario = ClusterScenario(site.cluster, site.jobs, queues=site.queues)
    try:
        policy = POLICIES.create(spec, seed=seed)
        schedule = drive(scenario.kernel(0), policy)
    except ConfigError:
        return None
    except DagsimError as error:
        return [f"{type(error).__name__}: {error}"]
    except Exception as error:
        return [f"traceback {type(error).__name__}: {error}"]
    wrong = Judge(site, spec).read(schedule)
    # A batch job without GPUs may combine nodes of several types.
    mixed = "a run spans distinct nodes of one type"
    found = violations(schedule, site.jobs, whole=False, suspensions=site.queues.suspensions)
    wrong += [what for what in found if not (mixed in what and "gpus=0" in what)]
    kernel, engine = scenario.engaged(spec, 0)
    if (
        engine is not None
        and engine.used == "compiled"
        and drive(kernel, POLICIES.create(spec, seed=seed)).log != schedule.log
    ):
        wrong.append("the compiled engine writes another log")
    return wrong


def check(cases: int, first: int, policies: list[str]) -> Iterator[tuple[str, int, list[str] | None]]:
    """Play the cases by the policies in turn."""
    for place in range(cases):
        spec, seed = policies[place % len(policies)], first + place
        yield spec, seed, faults(spec, seed)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    first = secrets.randbelow(10**9) if options.first is None else options.first
    say(f"first seed {first}")
    policies = options.policy or [spec for spec in specs() if spec.partition("[")[0] not in SKIPPED]
    played, wrong = 0, []
    for spec, seed, messages in check(options.cases, first, policies):
        played += messages is not None
        wrong += [{"policy": spec, "case": seed, "what": what} for what in (messages or ())[:3]]
        if messages:
            say(f"{spec} on case {seed}: {messages[0]}")
    say(f"{len(policies)} policies, {played} runs, {len(wrong)} faults")
    return {"first": first, "policies": len(policies), "runs": played, "faults": wrong}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--cases", type=int, default=500, help="runs in all (default 500)")
    parser.add_argument(
        "--from", type=int, default=None, dest="first", help="seed of the first case (default: a new one)"
    )
    parser.add_argument("--policy", action="append", help="play only these; may be given more than once")
    return command.run(parser, _work, holds=lambda figures: not figures["faults"])


if __name__ == "__main__":
    raise SystemExit(main())
