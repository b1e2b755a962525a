"""An independent referee: a small simulator of its own whose log must equal dagsim's, to the last bit.

    python scripts/referee.py [--cases 1000] [--from 0] [--json]

Workload n is drawn from seed n: three GPU types, DAGs, gangs, independent instances, nodes that go and come back, many
equal times. ``fifo`` and ``sjf`` play each. The referee knows nothing of dagsim but the numbers of the log's rows; it
scans lists where dagsim keeps indexes. The tie rules that it needed stand in docs/inside.md. The exit code is 1
if any log differs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import command

from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph, gpu_type
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

TYPES = ("A100-40", "V100-16", "T4")
POLICIES_PLAYED = ("fifo", "sjf")

ARRIVED, REJECTED, STARTED, FINISHED, FAILED, COMPLETED, DOWN, UP = 0, 2, 3, 5, 7, 8, 9, 10
TOO_LARGE, NO_SUCH_GPU = 1.0, 2.0

Row = tuple[int, float, int, int, int, int, int, int, float]


class Vertex(NamedTuple):
    """A task in plain numbers: seconds per type (``inf`` if it may not run there)."""

    seconds: dict[str, float]
    instances: int
    gang: bool
    gpus: int
    parents: tuple[int, ...]


class Arriving(NamedTuple):
    """A job in plain numbers."""

    arrival_s: float
    vertices: tuple[Vertex, ...]


@dataclass
class Machine:
    """A node: its type, its free GPUs, and whether it is up."""

    type: str
    gpus: int
    free: list[int]
    up: bool = True

    def room(self, gpus: int) -> int:
        return len(self.free) // gpus if self.up else 0


@dataclass
class Piece:
    """Instances of one task that became ready together. ``number`` is 0 for the first, then counts
    failures.
    """

    job: int
    task: int
    number: int
    waiting: int

    @property
    def age(self) -> tuple[int, int, int]:
        return self.job, self.task, self.number


@dataclass
class Attempt:
    """A running run: GPUs held by machine, in the order in which it took them."""

    piece: Piece
    ends_s: float
    held: list[tuple[int, int, list[int]]]


@dataclass
class Referee:
    """The whole simulation, as lists that are searched from end to end."""

    machines: list[Machine]
    jobs: Sequence[Arriving]
    absences: Sequence[tuple[int, float, float]]
    policy: str
    now: float = 0.0
    arrived: int = 0
    ready: list[Piece] = field(default_factory=list)
    running: dict[int, Attempt] = field(default_factory=dict)
    left: dict[tuple[int, int], int] = field(default_factory=dict)
    """Unfinished instances of each task in the system."""
    started: int = 0
    failed: int = 0
    rows: list[Row] = field(default_factory=list)

    def play(self) -> list[Row]:
        """Simulate instant by instant: ends, returns, outages, arrivals, then starts."""
        changes = sorted(
            [(end_s, 0, node) for node, _, end_s in self.absences]
            + [(start_s, 1, node) for node, start_s, _ in self.absences]
        )
        self.arrive()  # at 0 s, before the nodes that are away from the start have gone
        begun = not self.arrived
        while not begun or self.arrived < len(self.jobs) or self.left:
            due = [attempt.ends_s for attempt in self.running.values()] + [change[0] for change in changes[:1]]
            if self.arrived < len(self.jobs):
                due.append(self.jobs[self.arrived].arrival_s)
            self.now = min(due) if begun else 0.0
            begun = True
            for run in sorted(run for run, attempt in self.running.items() if attempt.ends_s == self.now):
                self.finish(run)
            while changes and changes[0][0] == self.now:
                _, down, node = changes.pop(0)
                if down:
                    self.take_down(node)
                else:
                    self.machines[node].up = True
                    self.write(UP, node=node)
            self.arrive()
            while self.start_one():
                pass
        return self.rows

    def arrive(self) -> None:
        """Record the arrival of all jobs that are due, in the order of the workload."""
        while self.arrived < len(self.jobs) and self.jobs[self.arrived].arrival_s == self.now:
            number = self.arrived
            self.arrived += 1
            self.write(ARRIVED, number)
            reasons = [reason for vertex in self.jobs[number].vertices if (reason := self.refusal(vertex))]
            if reasons:
                self.write(REJECTED, number, value=reasons[-1])
                continue
            for index, vertex in enumerate(self.jobs[number].vertices):
                self.left[number, index] = vertex.instances
            for index, vertex in enumerate(self.jobs[number].vertices):
                if not vertex.parents:
                    self.ready.append(Piece(number, index, 0, vertex.instances))

    def refusal(self, vertex: Vertex) -> float:
        """Reason why the empty cluster could never run the job; 0 if it could."""
        allowed = [kind for kind in TYPES if vertex.seconds[kind] < inf and self.of(kind)]
        if not allowed:
            return NO_SUCH_GPU
        needed = vertex.instances if vertex.gang else 1
        enough = [sum(self.machines[at].gpus // vertex.gpus for at in self.of(kind)) >= needed for kind in allowed]
        return 0.0 if any(enough) else TOO_LARGE

    def of(self, type_: str) -> list[int]:
        """Machines of a type, by number."""
        return [at for at, machine in enumerate(self.machines) if machine.type == type_]

    def types(self) -> list[str]:
        """The types of the cluster, in the order of its nodes."""
        return list(dict.fromkeys(machine.type for machine in self.machines))

    def vertex(self, piece: Piece) -> Vertex:
        return self.jobs[piece.job].vertices[piece.task]

    def start_one(self) -> bool:
        """Start the policy's choice. False if it chooses nothing."""
        chosen = self.first_in() if self.policy == "fifo" else self.shortest()
        if chosen is None:
            return False
        piece, shares = chosen
        if self.vertex(piece).gang:
            self.launch(piece, shares)
        else:
            for share in shares:
                self.launch(piece, [share])
        if not piece.waiting:
            self.ready.remove(piece)
        return True

    def first_in(self) -> tuple[Piece, list[tuple[int, int]]] | None:
        """Return the oldest piece, on its fastest type with room. Of equally fast types, the one
        with the fuller machine.
        """
        if not self.ready:
            return None
        piece = min(self.ready, key=lambda waiting: waiting.age)
        seconds = self.vertex(piece).seconds
        fits = [(seconds[kind], shares) for kind in self.types() if (shares := self.fit(piece, kind))]
        if not fits:
            return None
        fastest = [shares for each_s, shares in fits if each_s == min(fits, key=lambda pair: pair[0])[0]]
        return piece, min(fastest, key=lambda shares: len(self.machines[shares[0][0]].free))

    def shortest(self) -> tuple[Piece, list[tuple[int, int]]] | None:
        """Return the pair of piece and type with the fewest seconds; then the older piece, then the
        type named first.
        """
        pairs = [
            (self.vertex(piece).seconds[type_], piece.age, place, piece, shares)
            for piece in self.ready
            for place, type_ in enumerate(self.types())
            if (shares := self.fit(piece, type_))
        ]
        return min(pairs, key=lambda pair: pair[:3])[3:] if pairs else None

    def fit(self, piece: Piece, type_: str) -> list[tuple[int, int]]:
        """Choose machines and their numbers of instances.

        The fullest machine with room comes first, of equal ones the lowest number. A gang goes on
        one machine if possible, otherwise on the machines with the most room.
        """
        vertex = self.vertex(piece)
        if vertex.seconds[type_] == inf:
            return []
        rooms = [(self.machines[at].room(vertex.gpus), at) for at in self.of(type_)]
        fullest = sorted((len(self.machines[at].free), at, room) for room, at in rooms if room)
        if not vertex.gang:
            return [(at, min(piece.waiting, room)) for _, at, room in fullest[:1]]
        for _, at, room in fullest:
            if room >= vertex.instances:
                return [(at, vertex.instances)]
        shares, needed = [], vertex.instances
        for room, at in sorted(rooms, key=lambda entry: (-entry[0], entry[1])):
            if room and needed:
                shares.append((at, min(room, needed)))
                needed -= shares[-1][1]
        return [] if needed else shares

    def launch(self, piece: Piece, shares: list[tuple[int, int]]) -> None:
        vertex, run = self.vertex(piece), self.started
        self.started += 1
        held = []
        for at, instances in shares:
            machine = self.machines[at]
            gpus = sorted(machine.free)[: vertex.gpus * instances]
            machine.free = [gpu for gpu in machine.free if gpu not in gpus]
            held.append((at, instances, gpus))
            piece.waiting -= instances
        type_ = self.machines[shares[0][0]].type
        self.running[run] = Attempt(piece, self.now + vertex.seconds[type_], held)
        self.write_run(STARTED, run, self.running[run])

    def finish(self, run: int) -> None:
        attempt = self.running.pop(run)
        job, task = attempt.piece.job, attempt.piece.task
        self.give_back(attempt)
        self.write_run(FINISHED, run, attempt)
        self.left[job, task] -= sum(instances for _, instances, _ in attempt.held)
        if self.left[job, task]:
            return
        vertices = self.jobs[job].vertices
        for child, vertex in enumerate(vertices):
            if task in vertex.parents and not any(self.left[job, parent] for parent in vertex.parents):
                self.ready.append(Piece(job, child, 0, vertex.instances))
        if not any(self.left[job, index] for index in range(len(vertices))):
            self.write(COMPLETED, job)
            for index in range(len(vertices)):
                del self.left[job, index]

    def take_down(self, node: int, notice_s: float = 0.0) -> None:
        """Take a node down. Its runs fail in the order of their starts; each returns as a piece and
        starts over.
        """
        self.machines[node].up = False
        self.write(DOWN, node=node)
        for run, attempt in list(self.running.items()):
            if node in [at for at, _, _ in attempt.held]:
                del self.running[run]
                self.give_back(attempt)
                self.write_run(FAILED, run, attempt)
                self.failed += 1
                lost = sum(instances for _, instances, _ in attempt.held)
                self.ready.append(Piece(attempt.piece.job, attempt.piece.task, self.failed, lost))

    def give_back(self, attempt: Attempt) -> None:
        for at, _, gpus in attempt.held:
            self.machines[at].free += gpus

    def write_run(self, kind: int, run: int, attempt: Attempt) -> None:
        for at, instances, gpus in attempt.held:
            mask = sum(1 << gpu for gpu in gpus)
            piece = attempt.piece
            self.rows.append((kind, self.now, piece.job, piece.task, run, at, instances, mask, float(len(gpus))))

    def write(self, kind: int, job: int = -1, node: int = -1, value: float = 0.0) -> None:
        self.rows.append((kind, self.now, job, -1, -1, node, 0, 0, value))


class Workload(NamedTuple):
    """Nodes as (type, GPUs), jobs as dagsim has them, and absences as (node, from, to)."""

    nodes: list[tuple[str, int]]
    jobs: list[Job]
    absences: list[tuple[int, float, float]]


def draw(seed: int) -> Workload:
    """A random workload with many ties: equal lengths, equal arrivals, types that are equally fast."""
    rng = random.Random(seed)
    nodes = [(rng.choice(TYPES), rng.choice((1, 2, 4, 8))) for _ in range(rng.randint(1, 7))]
    jobs, now = [], 0.0
    for number in range(rng.randint(1, 40)):
        now += rng.choice((0.0, 0.0, 1.0, 2.0, rng.expovariate(1.0)))
        count = rng.randint(1, 6)
        edges = [Edge(parent, child) for child in range(count) for parent in range(child) if rng.random() < 0.35]
        jobs.append(Job(f"j{number}", TaskGraph(tuple(_task(rng, at) for at in range(count)), tuple(edges)), now))
    absences = []
    for node in range(len(nodes)):
        start_s = 0.0
        while rng.random() < 0.3:
            start_s += rng.choice((0.0, 1.0, 3.0, rng.expovariate(0.1)))
            absences.append((node, start_s, start_s + rng.choice((1.0, 2.0, rng.expovariate(0.5)))))
            start_s = absences[-1][2]
    return Workload(nodes, jobs, absences)


def _task(rng: random.Random, at: int) -> Task:
    speeds = rng.choice((None, None, {TYPES[0]: 2.0, TYPES[2]: 0.5}, {kind: rng.uniform(0.3, 3.0) for kind in TYPES}))
    return Task(
        f"t{at}",
        rng.choice((0.0, 1.0, 1.0, 2.0, 3.0, rng.expovariate(0.3))),
        instances=rng.choice((1, 1, 2, 3, 5)),
        gang=rng.random() < 0.3,
        gpus=rng.choice((1, 1, 1, 2, 4)),
        gpu_types=rng.choice((None, None, None, TYPES[:1], TYPES[1:])),
        speeds=speeds,
    )


def referee_rows(workload: Workload, policy: str) -> list[Row]:
    """Return the referee's log."""
    jobs = [
        Arriving(
            job.arrival_s,
            tuple(
                Vertex(
                    {kind: _seconds(task, kind) for kind in TYPES},
                    task.instances,
                    task.gang,
                    int(task.gpus),
                    tuple(edge.parent for edge in job.graph.edges if edge.child == index),
                )
                for index, task in enumerate(job.tasks)
            ),
        )
        for job in workload.jobs
    ]
    machines = [Machine(type_, gpus, list(range(gpus))) for type_, gpus in workload.nodes]
    return Referee(machines, jobs, workload.absences, policy).play()


def _seconds(task: Task, type_: str) -> float:
    if task.gpu_types is not None and type_ not in task.gpu_types:
        return inf
    return task.work / (task.speeds or {}).get(type_, 1.0)


def dagsim_rows(workload: Workload, policy: str) -> list[Row]:
    """Return dagsim's log."""
    nodes = tuple(Node(f"n{at}", gpu_type(type_), gpus) for at, (type_, gpus) in enumerate(workload.nodes))
    kernel = ClusterScenario(Cluster(nodes), workload.jobs, failures=(Outages(tuple(workload.absences)),)).kernel(0)
    return [(int(row[0]), *row[1:]) for row in kernel.run(POLICIES.create(policy)).log]


def difference(workload: Workload, policy: str) -> str:
    """Describe the first row that differs; empty if none does."""
    ours, theirs = dagsim_rows(workload, policy), referee_rows(workload, policy)
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return f"row {place}: dagsim {one}, referee {other}"
    return "" if len(ours) == len(theirs) else f"dagsim has {len(ours)} rows, the referee {len(theirs)}"


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    differences = []
    for seed in range(options.first, options.first + options.cases):
        workload = draw(seed)
        for policy in POLICIES_PLAYED:
            if mismatch := difference(workload, policy):
                differences.append({"workload": seed, "policy": policy, "what": mismatch})
                say(f"{policy} on workload {seed}: {mismatch}")
    comparisons = options.cases * len(POLICIES_PLAYED)
    say(f"{options.cases} workloads, {comparisons} comparisons, {len(differences)} differ")
    return {"cases": options.cases, "comparisons": comparisons, "differences": differences}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="random workloads (default 1000)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="seed of the first workload")
    return command.run(parser, _work, holds=lambda figures: not figures["differences"])


if __name__ == "__main__":
    raise SystemExit(main())
