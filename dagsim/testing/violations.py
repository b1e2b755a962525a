"""A check of a schedule's log against the rules that every schedule obeys. It does not use the
kernel.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite

from dagsim.model import GpuType, Job, JobSuspension, Kind, Node, PowerState, Record, RejectReason, Task
from dagsim.model.arithmetic import bits, ordered_sum
from dagsim.model.log import Schedule
from dagsim.model.mig import named_types

SecondsOnGpu = Callable[[Task, GpuType | None], float]
"""A function that returns the seconds that an instance takes on a GPU type if it has made no progress yet."""

_NEARLY = 1e-6


def violations(
    schedule: Schedule,
    jobs: Sequence[Job],
    *,
    seconds: SecondsOnGpu | None = None,
    keeps_work: bool = False,
    whole: bool = True,
    sharing: bool = False,
    suspensions: Sequence[JobSuspension] = (),
) -> list[str]:
    """Describe every impossible event in the log. If there is none, the result is empty.

    The rules are:

    - Time never goes backwards.
    - A task only starts when its parents are done and its job has arrived and been admitted, and
      only on nodes that are up and have an allowed type. A gang starts as a whole, on a single GPU
      type.
    - The runs on a node never use more GPUs, cores or memory than the node has. A GPU runs either
      at most one whole task (two with ``sharing``), or several tasks whose shares of the GPU add up
      to at most 1. A run that ends releases the resources that it took.
    - A run only fails at a moment at which one of its nodes goes down. Nothing runs on a node that
      is down, off, booting or being powered down.
    - A job completes with its last task.

    With ``seconds``, a run must compute for exactly as long as its task takes on the run's GPU
    type, and no task may end with work left. The two durations must be equal to the last bit if no
    run of the task was stopped before and the run's rate was 1. An elastic task must complete all
    of its work. ``keeps_work`` means that no work is lost and that runs compute from their start.
    In this case, no task may do more than its work either. With ``whole``, every job must be
    completed or rejected at the end. ``suspensions`` use the clock of the log. A suspended run does
    not compute, and other runs may use its cores, even after it has been resumed.
    """
    reading = _Reading(schedule, jobs, seconds, 2 if sharing else 1, suspensions)
    for record in schedule.log:
        reading.read(record)
    reading.close(keeps_work, whole)
    return reading.found


def as_recorded(task: Task, gpu: GpuType | None) -> float:
    """Return the recorded seconds: the task's work divided by its own speed on the type or, without one, by 1."""
    speeds = task.speeds if task.gpus else None
    return task.work / speeds.get(gpu.name, 1.0) if speeds and gpu is not None else task.work


def stuck(schedule: Schedule, jobs: Sequence[Job]) -> list[str]:
    """Return the unfinished ready tasks that could not run on any node that is up at the end, even
    if all nodes were empty. A simulation may end before all jobs are done only if there are such
    tasks.
    """
    reading = _Reading(schedule, jobs, None)
    for record in schedule.log:
        reading.read(record)
    return [
        f"{jobs[job].id}/{jobs[job].tasks[task].name}" for job, task in reading.ready() if not reading.fits(job, task)
    ]


@dataclass(slots=True)
class _Running:
    """The state of one run, according to those of its rows that have been read so far."""

    job: int
    task: int
    started_s: float
    rows: dict[int, Record] = field(default_factory=dict)
    computing_s: float | None = None
    rate: float = 1.0
    since_s: float | None = None
    """Time of the last change of its rate, or None if it has always been 1."""
    work: float = 0.0
    """Work done until ``since_s``, in seconds at rate 1, or the progress of an elastic task."""
    ending: tuple[int, float] | None = None
    begun: bool = True
    """False while it has its resources and waits for nodes to boot."""

    @property
    def instances(self) -> int:
        return sum(row.instances for row in self.rows.values())

    def done(self, now: float) -> float:
        """Return the work that the run has done by ``now``."""
        begun_s = self.started_s if self.computing_s is None else self.computing_s
        return self.work + self.rate * (now - (begun_s if self.since_s is None else self.since_s))


class _Reading:
    """The state that a log implies, updated row by row."""

    def __init__(
        self,
        schedule: Schedule,
        jobs: Sequence[Job],
        seconds: SecondsOnGpu | None,
        most: int = 1,
        suspensions: Sequence[JobSuspension] = (),
    ) -> None:
        self.suspensions = suspensions
        self.most = most
        """Maximum number of tasks on a GPU."""
        self.schedule, self.jobs, self.seconds = schedule, jobs, seconds
        self.nodes: Sequence[Node] = schedule.cluster.nodes
        self.found: list[str] = []
        self.now = 0.0
        self.arrived = 0
        self.state: dict[int, str] = {}
        """State of each job: arrived, admitted, rejected or completed."""
        self.runs: dict[int, _Running] = {}
        self.next_run = 0
        self.last_start: _Running | None = None
        self.running: Counter[tuple[int, int]] = Counter()
        self.finished: Counter[tuple[int, int]] = Counter()
        self.stopped: set[tuple[int, int]] = set()
        """Tasks of which some instances were stopped before."""
        self.done: defaultdict[tuple[int, int], float] = defaultdict(float)
        """Work done for each task, as a multiple of the work of one instance."""
        self.down: set[int] = set()
        self.fell_s: dict[int, float] = {}
        on_demand = {place: node.on_demand for place, node in enumerate(self.nodes) if node.on_demand is not None}
        self.power = {place: PowerState.UP if rule.up else PowerState.OFF for place, rule in on_demand.items()}
        """The state of each node that is powered on demand."""
        self.allocated: set[int] = set()
        """Runs that have, or had, resources on nodes that booted."""
        self.held = [[0.0, 0.0, 0.0] for _ in self.nodes]
        self.whole: list[Counter[int]] = [Counter() for _ in self.nodes]
        """For each node and GPU, the runs that hold all of it."""
        self.shared: list[Counter[int]] = [Counter() for _ in self.nodes]
        """For each node and GPU, the runs that share it."""

    def read(self, row: Record) -> None:
        if not (isfinite(row.time_s) and row.time_s >= self.now):
            self.say(row, f"follows {self.now!r} s")
        self.now = row.time_s
        match row.kind:
            case Kind.ARRIVED:
                self._arrive(row)
            case Kind.ADMITTED | Kind.REJECTED:
                killed = row.kind == Kind.REJECTED and row.value in (RejectReason.TIME_LIMIT, RejectReason.CANCELLED)
                if self.state.get(row.job) not in (("arrived", "admitted") if killed else ("arrived",)):
                    self.say(row, f"job is {self.state.get(row.job)}")
                if row.kind == Kind.REJECTED and any(run.job == row.job for run in self.runs.values()):
                    self.say(row, "the job still runs")
                self.state[row.job] = "admitted" if row.kind == Kind.ADMITTED else "rejected"
            case Kind.STARTED | Kind.ALLOCATED:
                self._start(row)
            case Kind.RELEASED:
                self._end(row)
            case Kind.POWER:
                self._power(row)
            case Kind.COMPUTING:
                run = self.runs.get(row.run)
                if run is None or row.node not in run.rows:
                    self.say(row, "run is not there")
                else:
                    run.computing_s = row.time_s
            case Kind.RATE:
                self._rate(row)
            case Kind.FINISHED | Kind.PREEMPTED | Kind.FAILED:
                self._end(row)
            case Kind.COMPLETED:
                self._complete(row)
            case Kind.DOWN | Kind.UP:
                if (row.node in self.down) == (row.kind == Kind.DOWN):
                    self.say(row, "node was so already")
                (self.down.add if row.kind == Kind.DOWN else self.down.discard)(row.node)
                self.fell_s[row.node] = row.time_s

    def close(self, keeps_work: bool, whole: bool) -> None:
        """Perform the checks that are due at the end of the log."""
        if whole:
            left = [job for job in range(len(self.jobs)) if self.state.get(job) not in ("completed", "rejected")]
            if left:
                self.found.append(f"jobs {left} neither completed nor were rejected")
            if self.runs:
                self.found.append(f"runs {sorted(self.runs)} never ended")
        for (job, task), done in self.done.items():
            instances, elastic = self.jobs[job].tasks[task].instances, self.jobs[job].tasks[task].elastic
            if self.seconds is None or self.finished[job, task] < instances:
                continue
            work = instances if elastic is None else elastic.training.start().total
            if done < work * (1 - _NEARLY) or (keeps_work and done > work * (1 + _NEARLY)):
                self.found.append(f"task {task} of job {job} did {done!r} of {work} instances' work")

    def ready(self) -> Iterator[tuple[int, int]]:
        """Yield the tasks whose parents are done, but of which some instances are neither running
        nor finished.
        """
        for number, state in self.state.items():
            if state not in ("arrived", "admitted"):
                continue
            for index, task in enumerate(self.jobs[number].tasks):
                waiting = task.instances - self.finished[number, index] - self.running[number, index]
                if waiting and all(self._is_done(number, parent) for parent in self._parents(number, index)):
                    yield number, index

    def fits(self, job: int, task: int) -> bool:
        """Return True if an instance of the task (for a gang, all instances) would fit on the nodes
        that are up if these were empty.
        """
        asked = self.jobs[job].tasks[task]
        room: Counter[GpuType | None] = Counter()
        for place, node in enumerate(self.nodes):
            if place not in self.down and _allows(asked, node):
                room[node.gpu] += _room(asked, node)
        return max(room.values(), default=0) >= (asked.instances if asked.gang else 1)

    def say(self, row: Record, what: str) -> None:
        self.found.append(f"{row!r}: {what}")

    def _arrive(self, row: Record) -> None:
        if row.job != self.arrived or row.job >= len(self.jobs):
            self.say(row, f"job {self.arrived} is next of {len(self.jobs)}")
            return
        job = self.jobs[row.job]
        if row.time_s != job.arrival_s or self.schedule.jobs[row.job].id != job.id:
            self.say(row, f"job {job.id!r} arrives at {job.arrival_s!r} s")
        self.state[row.job] = "arrived"
        self.arrived += 1

    def _power(self, row: Record) -> None:
        """Check that a node changes its power state in the allowed order, and not while a run is on
        it.
        """
        order = {
            PowerState.OFF: (PowerState.BOOTING,),
            PowerState.BOOTING: (PowerState.UP,),
            PowerState.UP: (PowerState.STOPPING, PowerState.OFF),
            PowerState.STOPPING: (PowerState.OFF,),
        }
        was, state = self.power.get(row.node), row.power
        failed = state == PowerState.OFF and row.node in self.down
        repaired = state == PowerState.UP and self.fell_s.get(row.node) == row.time_s
        if was is None or (
            state not in order[was] and not (failed or repaired) and row.time_s > self.schedule.begins_s
        ):
            self.say(row, f"node was {'always up' if was is None else was.name}")
        if state != PowerState.UP and any(row.node in run.rows and run.begun for run in self.runs.values()):
            self.say(row, "a run is there")
        self.power[row.node] = state

    def _begin(self, row: Record, run: _Running) -> None:
        """Start a run whose resources were allocated earlier."""
        begun = run.rows.get(row.node)
        if begun is None or begun._replace(kind=row.kind, time_s=row.time_s) != row:
            self.say(row, "starts other than it was allocated")
        if run.begun and run.started_s != row.time_s:
            self.say(row, "the run has started before")
        run.begun, run.started_s = True, row.time_s
        if row.node in self.down or self.power.get(row.node, PowerState.UP) != PowerState.UP:
            self.say(row, "node is not up")

    def _start(self, row: Record) -> None:
        run = self.runs.get(row.run)
        if run is not None and row.kind == Kind.STARTED and row.run in self.allocated:
            self._begin(row, run)
            return
        if run is None:
            if row.run != self.next_run:
                self.say(row, f"run {self.next_run} is next")
            self._check_last_start()
            run = self.runs[row.run] = self.last_start = _Running(row.job, row.task, row.time_s)
            if row.kind == Kind.ALLOCATED:
                run.begun = False
                self.allocated.add(row.run)
            self.next_run = row.run + 1
            self._check_may_start(row)
        elif run is not self.last_start or (run.job, run.task, run.started_s) != (row.job, row.task, row.time_s):
            self.say(row, "the run has started before")
        elif row.node in run.rows or self.nodes[row.node].gpu != self.nodes[next(iter(run.rows))].gpu:
            self.say(row, "a run spans distinct nodes of one type")
        run.rows[row.node] = row
        self.running[row.job, row.task] += row.instances
        self._take(row)

    def _check_may_start(self, row: Record) -> None:
        if self.state.get(row.job) not in ("arrived", "admitted"):
            self.say(row, f"job is {self.state.get(row.job)}")
        for parent in self._parents(row.job, row.task):
            if not self._is_done(row.job, parent):
                self.say(row, f"parent {parent} is not done")

    def _check_last_start(self) -> None:
        """Check the number of instances in the last start, now that all its rows have been read."""
        run = self.last_start
        if run is None or not run.rows:
            return
        row, task = next(iter(run.rows.values())), self.jobs[run.job].tasks[run.task]
        if task.gang:
            least, most = _range(task)
            if not least <= run.instances <= most:
                self.say(row, f"{run.instances} of a gang of {task.instances} started")
        elif len(run.rows) != 1:
            self.say(row, "independent instances run on one node")
        self.last_start = None

    def _take(self, row: Record) -> None:
        task, node = self.jobs[row.job].tasks[row.task], self.nodes[row.node]
        if row.instances < 1:
            self.say(row, "fewer than one instance")
        if row.node in self.down:
            self.say(row, f"node {node.name!r} is down")
        if (power := self.power.get(row.node, PowerState.UP)) != PowerState.UP:
            rule = node.on_demand
            if row.kind == Kind.STARTED or rule is None or rule.trigger == "pending" or power != PowerState.BOOTING:
                self.say(row, f"node {node.name!r} is {power.name}")
        if not _allows(task, node):
            self.say(row, f"task may not run on node {node.name!r}")
        if self.running[row.job, row.task] + self.finished[row.job, row.task] > _range(task)[1]:
            self.say(row, f"more than {task.instances} instances")
        if abs(row.held - task.gpus * row.instances) > _NEARLY:
            self.say(row, f"holds {row.held!r} GPUs")
        joins = self.most > 1 and task.gpus >= 1 and any(self.whole[row.node][gpu] for gpu in bits(row.gpus))
        for place, amount in enumerate((0.0 if joins else task.gpus, task.cpus, task.memory_gb)):
            self.held[row.node][place] += amount * row.instances
            most = (node.gpus, node.cpus, node.memory_gb)[place] + (self._lent(row.node) if place == 1 else 0.0)
            if self.held[row.node][place] > most + _NEARLY:
                self.say(row, f"node {node.name!r} holds {self.held[row.node]} of what it has")
        if node.gpus <= 62:
            self._take_gpus(row, task, node)

    def _suspended(self, run: _Running) -> Iterator[tuple[float, float]]:
        """Yield the start and the end of each period, up to now, in which a run was suspended. A
        job that starts when the period begins is not suspended.
        """
        for one in self.suspensions:
            if one.job == self.jobs[run.job].id and run.begun and run.started_s < one.start_s <= self.now:
                yield one.start_s, min(one.end_s, self.now)

    def _lent(self, node: int) -> float:
        """Return by how many cores the runs on a node may exceed its cores. These are the cores of
        runs that are suspended or have been, because a run that resumes may count as holding no
        cores.
        """
        paused = [run for run in self.runs.values() if node in run.rows and any(self._suspended(run))]
        return ordered_sum(self._cores(run, node) for run in paused)

    def _cores(self, run: _Running, node: int) -> float:
        return self.jobs[run.job].tasks[run.task].cpus * run.rows[node].instances

    def _take_gpus(self, row: Record, task: Task, node: Node) -> None:
        named = row.gpus.bit_count()
        if row.gpus >> node.gpus or (named != task.gpus * row.instances if task.gpus >= 1 else named > row.instances):
            self.say(row, "names GPUs that it cannot hold")
        if task.gpus and not named:
            self.say(row, "names no GPU")
        whole, shared = self.whole[row.node], self.shared[row.node]
        most = self.most if task.gpus >= 1 else 1
        if any(whole[gpu] >= most or (task.gpus >= 1 and shared[gpu]) for gpu in bits(row.gpus)):
            self.say(row, "a GPU serves another task alone")
        if task.gpus >= 1:
            whole.update(bits(row.gpus))
        else:
            self.shared[row.node].update(bits(row.gpus))
        for gpu in bits(row.gpus) if task.gpus < 1 else ():
            only = [other for run in self.runs.values() if (other := run.rows.get(row.node)) and other.gpus == 1 << gpu]
            if ordered_sum(other.held for other in only) > 1 + _NEARLY:
                self.say(row, f"GPU {gpu} is shared beyond 1")

    def _end(self, row: Record) -> None:
        run = self.runs.get(row.run)
        begun = None if run is None else run.rows.get(row.node)
        if run is None or begun is None:
            self.say(row, "run is not there")
            return
        self._check_last_start()
        if begun._replace(kind=row.kind, time_s=row.time_s) != row:
            self.say(row, f"gives back other than {begun!r}")
        if run.ending not in (None, (row.kind, row.time_s)):
            self.say(row, f"the run's other nodes said {run.ending}")
        if run.begun == (row.kind == Kind.RELEASED):
            self.say(row, f"the run has{'' if run.begun else ' not'} started")
        if row.kind == Kind.PREEMPTED and row.time_s == run.started_s and row.run not in self.allocated:
            self.say(row, "stopped in the instant of its start")
        if run.ending is None:
            self._end_of_run(row, run)
        run.ending = (row.kind, row.time_s)
        self._give(row)
        del run.rows[row.node]
        if not run.rows:
            del self.runs[row.run]

    def _rate(self, row: Record) -> None:
        run = self.runs.get(row.run)
        if run is None or row.node not in run.rows or not row.rate >= 0:
            self.say(row, "run is not there, or has no such rate")
        # a run has one row per node, and only the first of these rows changes the rate
        elif run.since_s != row.time_s or run.rate != row.rate:
            run.work, run.rate, run.since_s = run.done(row.time_s), row.rate, row.time_s

    def _end_of_run(self, row: Record, run: _Running) -> None:
        """Check the first row that ends a run: the reason if the run failed, and the work that was
        done.
        """
        if row.kind == Kind.FAILED and not any(self.fell_s.get(node) == row.time_s for node in run.rows):
            self.say(row, "none of its nodes went down now")
        if self.seconds is None or not run.begun:
            return
        task, key = self.jobs[run.job].tasks[run.task], (run.job, run.task)
        if task.elastic is not None:
            self.done[key] += run.done(row.time_s)
            return
        takes_s = self.seconds(task, self.nodes[row.node].gpu)
        begun_s = run.started_s if run.computing_s is None else run.computing_s
        ends = row.kind == Kind.FINISHED
        is_whole = ends and key not in self.stopped
        paused_s = ordered_sum(until_s - since_s for since_s, until_s in self._suspended(run))
        if run.since_s is not None:
            ran_s, words = run.done(row.time_s), f"it did {run.done(row.time_s)!r} s of work"
        elif paused_s:
            ran_s, words = row.time_s - begun_s - paused_s, f"begun at {begun_s!r} and suspended for {paused_s!r} s"
        else:
            self._check_steady(row, begun_s, takes_s, is_whole=is_whole)
            if takes_s:
                self.done[key] += run.instances * (row.time_s - begun_s) / takes_s
            elif ends:
                self.done[key] += run.instances
            return
        if is_whole and abs(ran_s - takes_s) > _NEARLY:
            self.say(row, f"{words}, it takes {takes_s!r} s")
        self.done[key] += run.instances * (ran_s / takes_s if takes_s else 1.0)

    def _check_steady(self, row: Record, begun_s: float, takes_s: float, *, is_whole: bool) -> None:
        """Check the end of a run whose rate was 1 and that was never suspended."""
        if is_whole and row.time_s != begun_s + takes_s:
            self.say(row, f"begun at {begun_s!r}, it takes {takes_s!r} s")
        if row.time_s > begun_s + takes_s * (1 + 1e-9) + _NEARLY and row.kind == Kind.FINISHED:
            self.say(row, f"begun at {begun_s!r}, it takes at most {takes_s!r} s")

    def _give(self, row: Record) -> None:
        task = self.jobs[row.job].tasks[row.task]
        if task.gpus >= 1:
            self.whole[row.node] -= Counter(bits(row.gpus))
        stays = self.most > 1 and task.gpus >= 1 and any(self.whole[row.node][gpu] for gpu in bits(row.gpus))
        for place, amount in enumerate((0.0 if stays else task.gpus, task.cpus, task.memory_gb)):
            self.held[row.node][place] -= amount * row.instances
        if task.gpus < 1:
            self.shared[row.node] -= Counter(bits(row.gpus))
        self.running[row.job, row.task] -= row.instances
        if row.kind == Kind.FINISHED:
            elastic = task.elastic is not None
            self.finished[row.job, row.task] += 0 if elastic else row.instances
            if elastic and len(self.runs[row.run].rows) == 1:
                self.finished[row.job, row.task] = task.instances
        else:
            self.stopped.add((row.job, row.task))

    def _complete(self, row: Record) -> None:
        if self.state.get(row.job) not in ("arrived", "admitted"):
            self.say(row, f"job is {self.state.get(row.job)}")
        open_ = [index for index in range(len(self.jobs[row.job].tasks)) if not self._is_done(row.job, index)]
        if open_:
            self.say(row, f"tasks {open_} are not done")
        self.state[row.job] = "completed"

    def _parents(self, job: int, task: int) -> Iterable[int]:
        return [edge.parent for edge in self.jobs[job].graph.edges if edge.child == task]

    def _is_done(self, job: int, task: int) -> bool:
        return self.finished[job, task] == self.jobs[job].tasks[task].instances


def _range(task: Task) -> tuple[int, int]:
    """Return the smallest and the largest number of instances with which a task may run at any
    time.
    """
    return (task.instances, task.instances) if task.elastic is None else (task.elastic.least, task.elastic.most)


def _allows(task: Task, node: Node) -> bool:
    """Return True if the node has a type that may run the task."""
    if node.gpu is None:
        return not task.gpus and task.gpu_types is None
    return task.gpu_types is None or node.gpu.name in named_types(task.gpu_types)


def _room(task: Task, node: Node) -> int:
    """Return how many instances would fit on the node if it were empty."""
    counts = [1 << 40]
    if task.gpus >= 1:
        counts.append(int(node.gpus // task.gpus))
    elif task.gpus:
        counts.append(node.gpus * int((1 + _NEARLY) // task.gpus))
    if task.cpus:
        counts.append(int((node.cpus + _NEARLY) // task.cpus))
    if task.memory_gb:
        counts.append(int((node.memory_gb + _NEARLY) // task.memory_gb))
    return min(counts)
