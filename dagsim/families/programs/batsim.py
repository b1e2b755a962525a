"""Schedulers that use Batsim's protocol (docs/reference/batsim.md).

dagsim takes the role of Batsim 3 and 4. It sends JSON messages over ZeroMQ, and receives one reply
to each message. A Batsim resource is a GPU, or a core on a cluster without GPUs. A Batsim job is a
ready task, submitted when its last parent is done.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from math import inf, isfinite
from typing import Any, NamedTuple, NoReturn
from weakref import finalize

from dagsim.errors import ConfigError, PolicyFailed, require
from dagsim.families.programs.batsim_peer import BatsimPeer, batsim_event
from dagsim.families.programs.process import program_words, shown
from dagsim.model import Decision, Kill, RejectReason, Share, Start, Wait
from dagsim.systems.cluster.api import ClusterView, Run, TaskState

WORKLOAD = "w0"
"""Name of the only workload; the job with number n is called ``w0!n``."""
_ENDPOINT = re.compile(r"(tcp://[^\s/]+:(\d+|\*)|ipc://\S+)")
_INTERVAL = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_RESOLUTION_S = 1e-9
"""Times that differ by less are equal, as in SimGrid. Schedulers of pybatsim answer 1e-21 s late."""


class Batsim:
    """A scheduler that listens at ``endpoint`` (``tcp://HOST:PORT`` or ``ipc://PATH``) and uses
    Batsim's protocol.

    With ``start``, dagsim runs this command for every simulation, without a shell. ``{endpoint}``
    in the command is replaced by the endpoint; if its port is ``*``, dagsim chooses a free one.
    Without ``start``, the scheduler must already be listening, and simulations use the endpoint one
    after another. ``timeout_s`` limits the wall-clock time until a reply.

    Raises:
        ConfigError: The endpoint is not valid, pyzmq is not installed, ``start`` cannot be read, or
            ``timeout_s`` is not positive.
        UnknownName: The program in ``start`` does not exist.
    """

    def __init__(self, endpoint: str, timeout_s: float = 10.0, start: str | None = None) -> None:
        if _ENDPOINT.fullmatch(endpoint) is None:
            raise ConfigError(
                f"batsim: cannot read the endpoint {endpoint!r}; expected tcp://HOST:PORT or ipc://PATH, as in "
                "batsim:tcp://localhost:28000"
            )
        if endpoint.endswith(":*") and start is None:
            raise ConfigError(f"batsim: the port in {endpoint!r} may only be * together with start=COMMAND")
        try:
            import_module("zmq")
        except ImportError:
            raise ConfigError(
                "batsim: this policy needs pyzmq; run pip install -e '.[batsim]' in the checkout"
            ) from None
        example = "start='pybatsim schedFcfs -s {endpoint}'"
        self._argv = None if start is None else program_words("batsim", start, example, timeout_s)
        require(0 < timeout_s < 1e6, "batsim: timeout_s must be a number of seconds above 0", timeout_s)
        self.name = f"batsim:{endpoint}"
        self.endpoint, self.timeout_s = endpoint, timeout_s
        self._session: _Session | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise PolicyFailed(f"policy {self.name!r} cannot be forked: the state of another program cannot be copied")

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        """Yield the other program's decisions for the current time.

        Raises:
            PolicyFailed: The program did not answer in time, ended, or sent an invalid or
                unsupported message, or Batsim's protocol cannot express the cluster, a task or an
                event.
        """
        if self._session is None:
            peer = BatsimPeer(self.name, self.endpoint, self.timeout_s, self._argv)
            finalize(self, peer.close)
            self._session = _Session(self.name, peer, view)
        view.follow(self._session)
        return self._session.decisions(view)


class _Fault(NamedTuple):
    """Something that Batsim's protocol cannot express."""

    what: str


class _Submitted(NamedTuple):
    """A job whose submission has to be sent."""

    job: str


class _BatsimJob(NamedTuple):
    """A job that is running."""

    task: TaskState
    resources: tuple[int, ...]
    runs: set[int]
    """Its runs that have not ended."""


class _Session:
    """One simulation as seen by Batsim: numbered resources, jobs, events, and orders that have not
    been carried out yet.
    """

    def __init__(self, name: str, peer: BatsimPeer, view: ClusterView) -> None:
        self.name, self._peer = name, peer
        self._node_of: list[int] = []
        """The node of each resource."""
        self._per_node: list[tuple[float, float]] = []
        """CPUs and memory (GB) of each node, divided by its resources."""
        self._on_gpus = True
        self._busy: dict[int, str] = {}
        """The job on each resource in use."""
        self._tasks: dict[str, TaskState] = {}
        """Submitted jobs that wait, by id."""
        self._runs: dict[int, str] = {}
        """The job of each run."""
        self._running: dict[str, _BatsimJob] = {}
        """Running jobs by id."""
        self._placed: str | None = None
        """The job that is being started."""
        self._submitted = 0
        self._events: list[dict[str, Any] | _Submitted | _Fault] = []
        """What has to be sent, or reported, at the next decision."""
        self._orders: deque[tuple[float, dict[str, Any]]] = deque()
        self._ready_s = 0.0
        """When the scheduler has finished its last reply and can receive the next message."""
        self._calls: list[float] = []
        self._ended = False
        try:
            self._exchange(view, [self._begin(view)])
        except BaseException:
            peer.close()  # close the connection, because the policy must not keep a session that failed to start
            raise

    def push(self, task: TaskState) -> None:
        """Submit a task that has become ready. Errors are reported at the next decision, where the
        message can name them.
        """
        if task.piece:
            self._events.append(_Fault(f"instances of {task.name} came back after a failure or a preemption"))
            return
        id_ = f"{WORKLOAD}!{self._submitted}"
        self._submitted += 1
        self._tasks[id_] = task
        self._events.append(_Submitted(id_))

    def started(self, run: Run, now: float) -> None:
        """Record which job a run belongs to."""
        id_ = self._placed
        if id_ is None:
            self._events.append(_Fault(f"{run.task.name} ran before the simulation began"))
            return
        self._runs[run.id] = id_
        self._running[id_].runs.add(run.id)

    def ended(self, run: Run, now: float) -> None:
        """Report a job as completed when its last run has ended."""
        id_ = self._runs.pop(run.id, None)
        if id_ is None or id_ not in self._running:
            return
        job = self._running[id_]
        job.runs.discard(run.id)
        if not job.runs:
            self._release(id_)
            self._events.append(_completed(now, id_, "COMPLETED_SUCCESSFULLY", job.resources))

    def decisions(self, view: ClusterView) -> Iterator[Decision]:
        """Yield the decisions for the current time: orders that are due, then replies to new events."""
        while not self._ended:
            while self._orders and self._orders[0][0] <= view.now + _RESOLUTION_S:
                yield from self._carry_out(view, self._orders.popleft()[1])
            if self._orders:
                yield Wait(self._orders[0][0])
                return
            over = not (view.pending or view.ready or view.running)
            if self._ready_s > view.now + _RESOLUTION_S and not over:
                yield Wait(self._ready_s)
                return
            events = self._due(view)
            if events:
                self._exchange(view, events)
            elif over:
                self._exchange(view, [batsim_event(view.now, "SIMULATION_ENDS", {})])
                self._peer.close()
                self._ended = True
            else:
                if self._calls:
                    yield Wait(self._calls[0])
                return

    def _due(self, view: ClusterView) -> list[dict[str, Any]]:
        """Return the events since the last message and the requested calls that are due, ordered by
        time.
        """
        events, self._events = self._events, []
        messages = []
        for event in events:
            match event:
                case _Fault(what):
                    self._fail(view, f"cannot schedule this simulation: {what}, which its protocol cannot express")
                case _Submitted(id_):
                    # A job that was killed while it was waiting is no longer in the system.
                    if id_ in self._tasks:
                        messages.append(self._submission(view, id_, self._tasks[id_]))
                case message:
                    messages.append(message)
        while self._calls and self._calls[0] <= view.now + _RESOLUTION_S:
            self._calls.pop(0)
            messages.append(batsim_event(view.now, "REQUESTED_CALL", {}))
        return messages

    def _begin(self, view: ClusterView) -> dict[str, Any]:
        if len(view.gpu_types) != 1:
            names = ", ".join("CPU only" if gpu is None else gpu.name for gpu in view.gpu_types)
            self._fail(view, f"cannot schedule a cluster of several types ({names}); its resources are all alike")
        self._on_gpus = view.gpu_types[0] is not None
        resources: list[dict[str, Any]] = []
        for number, state in enumerate(view.machines.list):
            count = state.gpus if self._on_gpus else int(state.node.cpus)
            self._per_node.append((state.node.cpus / max(count, 1), state.node.memory_gb / max(count, 1)))
            for place in range(count):
                self._node_of.append(number)
                name = f"{state.node.name}.{place}"
                resources.append(
                    {"id": len(resources), "name": name, "state": "idle", "properties": {}, "zone_properties": {}}
                )
        data = {
            "nb_resources": len(resources),
            "nb_compute_resources": len(resources),
            "nb_storage_resources": 0,
            "allow_compute_sharing": False,
            "allow_storage_sharing": False,
            "config": {
                "redis-enabled": False,
                "profiles-forwarded-on-submission": True,
                "dynamic-jobs-enabled": False,
                "dynamic-jobs-acknowledged": False,
                "profile-reuse-enabled": False,
                "forward-unknown-events": False,
            },
            "compute_resources": resources,
            "storage_resources": [],
            "workloads": {WORKLOAD: "dagsim"},
            "profiles": {WORKLOAD: {}},
        }
        return batsim_event(view.now, "SIMULATION_BEGINS", data)

    def _submission(self, view: ClusterView, id_: str, task: TaskState) -> dict[str, Any]:
        number = id_.partition("!")[2]
        job = {
            "id": id_,
            "subtime": task.ready_s,
            "walltime": task.best_s,
            "res": task.waiting * self._width(view, task),
            "profile": number,
        }
        data = {"job_id": id_, "job": job, "profile": {"type": "delay", "delay": task.best_s}}
        return batsim_event(task.ready_s, "JOB_SUBMITTED", data)

    def _width(self, view: ClusterView, task: TaskState) -> int:
        """Return the number of resources that an instance needs. Fail if the task has a demand that
        Batsim's resources cannot express.
        """
        asked = task.task
        amount, unit = (asked.gpus, "GPUs") if self._on_gpus else (asked.cpus, "cores")
        if amount < 1 or amount != int(amount):
            self._fail(
                view, f"cannot schedule {task.name}, which needs {amount:g} {unit}; it supports only whole {unit}"
            )
        if task.demand.terms is not None:
            self._fail(view, f"cannot schedule {task.name}, whose partition or request restricts its nodes")
        cpus, memory_gb = min(self._per_node), min(memory for _, memory in self._per_node)
        for wanted, there, noun in ((asked.cpus, cpus[0], "CPUs"), (asked.memory_gb, memory_gb, "GB of memory")):
            if wanted > there * amount and not (noun == "CPUs" and not self._on_gpus):
                self._fail(
                    view,
                    f"cannot schedule {task.name}, which needs {wanted:g} {noun}; {amount:g} {unit} of a node come "
                    f"with {there * amount:g}, and its protocol counts {unit} only",
                )
        return int(amount)

    def _carry_out(self, view: ClusterView, order: dict[str, Any]) -> Iterator[Decision]:
        match order:
            case {"type": "EXECUTE_JOB", "data": {"job_id": str(id_), "alloc": str(alloc), **rest}}:
                if rest:
                    self._fail(
                        view, f"sent EXECUTE_JOB with {', '.join(map(str, rest))}; dagsim supports job_id and alloc"
                    )
                yield self._start(view, id_, alloc)
                self._placed = None
            case {"type": "REJECT_JOB", "data": {"job_id": str(id_)}}:
                if id_ not in self._tasks:
                    self._fail(view, f"rejected {id_!r}, which is not waiting")
                task = self._tasks.pop(id_)
                self._check_single(view, id_, task)
                yield Kill(task.job.number, RejectReason.BY_POLICY)
            case {"type": "KILL_JOB", "data": {"job_ids": [*ids]}}:
                yield from self._kill(view, ids)
            case {"type": "CALL_ME_LATER", "data": {"timestamp": int() | float() as call_s}} if isfinite(call_s):
                if call_s <= view.now + _RESOLUTION_S:
                    self._fail(view, f"asked to be called at {call_s:g} s, which is not later than now")
                self._calls = sorted([*self._calls, float(call_s)])
            case {"type": "EXECUTE_JOB" | "REJECT_JOB" | "KILL_JOB" | "CALL_ME_LATER"}:
                self._fail(view, f"sent {shown(order)}, which lacks a field or has one of another type")
            case _:
                self._fail(
                    view,
                    f"sent {shown(order.get('type', order))}; dagsim supports EXECUTE_JOB, REJECT_JOB, KILL_JOB and "
                    "CALL_ME_LATER",
                )

    def _start(self, view: ClusterView, id_: str, alloc: str) -> Start:
        task = self._tasks.get(id_)
        if task is None:
            self._fail(view, f"executes {id_!r}, which is not waiting")
        resources = self._allocated(view, alloc)
        width = self._width(view, task)
        if len(resources) != task.waiting * width:
            self._fail(view, f"executes {id_!r} on {len(resources)} resources; it needs {task.waiting * width}")
        counts: dict[int, int] = {}
        for resource in resources:
            if resource in self._busy:
                self._fail(view, f"executes {id_!r} on resource {resource}, which {self._busy[resource]!r} holds")
            counts[self._node_of[resource]] = counts.get(self._node_of[resource], 0) + 1
        for node, count in counts.items():
            if count % width:
                self._fail(
                    view,
                    f"executes {id_!r} on {count} resources of node {node}; each instance needs {width} of one node",
                )
        del self._tasks[id_]
        self._running[id_] = _BatsimJob(task, resources, set())
        self._busy.update(dict.fromkeys(resources, id_))
        self._placed = id_
        return Start(task, tuple(Share(node, count // width) for node, count in sorted(counts.items())))

    def _allocated(self, view: ClusterView, alloc: str) -> tuple[int, ...]:
        """Return the resources in an interval set such as ``0-3 7``, in ascending order."""
        resources: set[int] = set()
        for part in alloc.replace(",", " ").split():
            match = _INTERVAL.fullmatch(part)
            first, last = (-1, -1) if match is None else (int(match[1]), int(match[2] or match[1]))
            if not 0 <= first <= last < len(self._node_of):
                self._fail(view, f"allocates {part!r}; expected resources between 0 and {len(self._node_of) - 1}")
            resources.update(range(first, last + 1))
        return tuple(sorted(resources))

    def _kill(self, view: ClusterView, ids: list[Any]) -> Iterator[Decision]:
        """Kill running jobs. Jobs that have ended in the meantime are confirmed without
        progress."""
        progress = {}
        for id_ in ids:
            if not isinstance(id_, str) or id_ in self._tasks or not self._is_job(id_):
                self._fail(view, f"kills {id_!r}, which is not running")
            if id_ not in self._running:
                continue
            job = self._running[id_]
            self._check_single(view, id_, job.task)
            run = view.running[min(job.runs)]
            done = (view.now - run.started_s) / run.estimate_s if run.estimate_s else 1.0
            progress[id_] = {"profile_name": id_.partition("!")[2], "progress": min(done, 1.0)}
            self._release(id_)
            self._events.append(_completed(view.now, id_, "COMPLETED_KILLED", job.resources))
            yield Kill(job.task.job.number, RejectReason.CANCELLED)
        self._events.append(batsim_event(view.now, "JOB_KILLED", {"job_ids": ids, "job_progress": progress}))

    def _is_job(self, id_: str) -> bool:
        number = id_.removeprefix(f"{WORKLOAD}!")
        return number.isdecimal() and number.isascii() and int(number) < self._submitted

    def _check_single(self, view: ClusterView, id_: str, task: TaskState) -> None:
        """Fail if the job of a task that is to be killed or rejected has other tasks, because these
        would end together with this task.
        """
        if len(task.job.tasks) > 1:
            self._fail(view, f"ends {id_!r} ({task.name}); only jobs of a single task can be killed or rejected")

    def _release(self, id_: str) -> None:
        for resource in self._running.pop(id_).resources:
            del self._busy[resource]

    def _exchange(self, view: ClusterView, events: list[dict[str, Any]]) -> None:
        """Send a message, and store the orders in the reply by their times."""
        try:
            reply = self._peer.exchange({"now": view.now, "events": events})
        except PolicyFailed as error:
            self._fail(view, str(error))
        match reply:
            case {"now": int() | float() as now, "events": [*orders]} if isfinite(now):
                pass
            case _:
                self._fail(view, f'replied {shown(reply)}; expected {{"now": seconds, "events": [...]}}')
        timed = []
        for order in orders:
            time_s = order.get("timestamp") if isinstance(order, dict) else None
            if not isinstance(time_s, int | float) or not view.now - _RESOLUTION_S <= time_s < inf:
                self._fail(view, f"sent {shown(order)}; expected an event whose timestamp is not before {view.now:g}")
            timed.append((max(float(time_s), view.now), order))
        self._orders.extend(sorted(timed, key=lambda pair: pair[0]))
        self._ready_s = max(float(now), view.now)

    def _fail(self, view: ClusterView, what: str) -> NoReturn:
        self._peer.close()
        raise PolicyFailed(f"policy {self.name!r} at {view.now:g} s: the program {what} (docs/reference/batsim.md)")


def _completed(time_s: float, id_: str, state: str, resources: tuple[int, ...]) -> dict[str, Any]:
    alloc = " ".join(map(str, resources))
    return batsim_event(time_s, "JOB_COMPLETED", {"job_id": id_, "job_state": state, "return_code": 0, "alloc": alloc})
