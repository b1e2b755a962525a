"""Checks that a decision is legal, before the kernel carries it out. Nothing in this module changes
any state.

All checks are made before the first change, so an illegal decision leaves the simulation unchanged.
Each message states the time, the task or run, the reason, and what to do instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from operator import index
from typing import Any, NoReturn

from dagsim.errors import IllegalDecision, ModelError
from dagsim.model import Elastic, Kill, RejectReason, TrainingState
from dagsim.systems.cluster.resources.nodes import MICRO, Allotted, DemandClass, NodeState, may_mix_types
from dagsim.systems.cluster.resources.site import nodes_by_counts
from dagsim.systems.cluster.state import JobState, Run, TaskState
from dagsim.systems.cluster.view import Simulation
from dagsim.text import count_of


def starts_on(kernel: Simulation, task: Any, placement: Any) -> NodeState | None:
    """Return the node for a simple legal start, in which independent instances or a whole gang
    start on one node. Return None if the start is illegal or not simple. In that case, ``started``
    checks the start.
    """
    try:
        ((node, instances, gpu),) = placement
        if not (type(node) is int is type(instances) and gpu is None and task in kernel.frontier.ready):
            return None
        demand: DemandClass = task.demand
        machine = kernel.machines.list[node]
        room = machine.idle // demand.whole if demand.plain and machine.up else machine.room(demand)
        legal = (
            machine.index == node  # a negative number would index the list from its end
            and 0 < instances <= task.waiting
            and instances <= room
            and machine.type in demand.types
            and (not demand.gang or (instances == task.waiting and task.training is None))
        )
        return machine if legal else None
    except (TypeError, ValueError, IndexError):
        return None


def started(kernel: Simulation, task: object, placement: object) -> list[Allotted]:
    """Return the shares for a ``Start`` that can be carried out.

    Raises:
        IllegalDecision: The task cannot start now, or not on these nodes.
    """
    if not isinstance(task, TaskState):
        _refuse(kernel.now, f"cannot start {task!r}: it is not a task; choose one from view.ready")
    why = _why_not_ready(kernel, task)
    if why:
        _refuse_start(kernel, task, why)
    return _allotted(kernel, task, task.waiting, placement, kernel.machines.list)


def moved(kernel: Simulation, run: Run, placement: object) -> list[Allotted]:
    """Return the shares for a legal ``Migrate``, as if ``run`` had released its resources.

    Raises:
        IllegalDecision: The task of the run cannot continue there.
    """
    machines, demand = kernel.machines.list, run.task.demand
    freed = list(machines)
    if run.beside:
        _refuse(
            kernel.now,
            f"run {run.id} of {run.task.name} shares its GPUs with run {run.beside[0]}, so it cannot be "
            "migrated; preempt it instead",
        )
    for machine, count, mask, on in run.held:
        freed[machine.index] = freed[machine.index].after(demand, count, mask, on)
    shares = _allotted(kernel, run.task, run.instances, placement, freed)
    return [share._replace(machine=machines[share.machine.index]) for share in shares]


def resizable(kernel: Simulation, run: Run, placement: object) -> list[Allotted]:
    """Return the shares for a legal ``Resize``, as if ``run`` had released its resources.

    Raises:
        IllegalDecision: The task of the run is not elastic, or cannot continue there.
    """
    if run.task.training is None:
        _refuse(
            kernel.now, f"cannot resize run {run.id} of {run.task.name}: the task is not elastic; migrate it instead"
        )
    return moved(kernel, run, placement)


def placed(kernel: Simulation, task: TaskState, shares: Sequence[Allotted]) -> TrainingState:
    """Return a copy of an elastic task's training state, placed on the shares.

    Raises:
        IllegalDecision: The task's model has no entry for this placement.
    """
    assert task.training is not None
    training, gpu = task.training.copy(), kernel.machines.types[shares[0].machine.type]
    try:
        training.place([share.instances for share in shares], "" if gpu is None else gpu.name)
        training.pace()
    except ModelError as error:
        _refuse_start(kernel, task, str(error))
    return training


def joinable(kernel: Simulation, task: object, run_id: object) -> Run:
    """Return the run whose GPUs a ``Join`` shares with the task.

    Raises:
        IllegalDecision: There is no sharing model, or the two tasks cannot share their GPUs.
    """
    if not isinstance(task, TaskState):
        _refuse(kernel.now, f"cannot start {task!r}: it is not a task; choose one from view.ready")
    if why := _why_not_ready(kernel, task):
        _refuse_start(kernel, task, why)
    number = _whole(run_id)
    run = None if number is None else kernel.running.get(number)
    if kernel.sharing is None:
        _refuse_start(kernel, task, "it cannot join a run, because this simulation has no sharing model")
    if run is None:
        _refuse_start(
            kernel, task, f"run {run_id!r} is not running, so nothing can join it; choose a key of view.running"
        )
    if run.beside:
        _refuse_start(kernel, task, f"run {run.id} already shares its GPUs with run {run.beside[0]}")
    mine, theirs = task.demand, run.task.demand
    gang = run.instances if theirs.gang else 0
    if not mine.whole or mine.whole != theirs.whole or mine.gang != gang or run.instances > task.waiting:
        asked = f"{mine.gang or task.waiting} x {mine.demand.gpus:g} GPUs"
        _refuse_start(
            kernel, task, f"it requests {asked}, but run {run.id} holds {run.instances} x {theirs.demand.gpus:g} GPUs"
        )
    if task.training is not None or run.task.training is not None:
        _refuse_start(kernel, task, f"it cannot join run {run.id}: elastic tasks do not share GPUs")
    for machine, count, *_ in run.held:
        if machine.type not in mine.types or (mine.nodes != -1 and not mine.nodes & machine.bit):
            _refuse_start(kernel, task, f"node {machine.node.name!r} is not of a type it may run on")
        if machine.cpus < mine.cpus * count or machine.memory < mine.memory * count:
            free = f"{machine.cpus / MICRO:g} CPUs and {machine.memory / MICRO:g} GB"
            _refuse_start(kernel, task, f"node {machine.node.name!r} has only {free} left")
    gpu = kernel.machines.types[run.type]
    try:
        rates = kernel.sharing.pair(task.task, run.task.task, "" if gpu is None else gpu.name)
    except ModelError as error:
        _refuse_start(kernel, task, str(error))
    if rates is None:
        _refuse_start(kernel, task, f"it does not fit into the memory of its GPUs beside {run.task.name}")
    return run


def stopped(kernel: Simulation, run_id: object) -> Run:
    """Return the run that a ``Preempt`` or ``Migrate`` may stop.

    Raises:
        IllegalDecision: The run is not running, or it started at the current time.
    """
    number = _whole(run_id)
    run = None if number is None else kernel.running.get(number)
    if run is None:
        _refuse(kernel.now, f"run {run_id!r} is not running, so it cannot be preempted; choose a key of view.running")
    # Without this check, a policy could start and preempt the same task forever while time stands
    # still.
    if run.started_s == kernel.now:
        _refuse(
            kernel.now,
            f"run {run.id} of {run.task.name} started at this very moment, so it cannot be preempted yet; "
            "choose a run with run.started_s < view.now",
        )
    return run


def wake_up(now: float, until_s: object) -> float:
    """Return the time at which a ``Wait`` ends.

    Raises:
        IllegalDecision: The time is not later than now.
    """
    try:
        wake_s = float("nan") if isinstance(until_s, bool | str) else float(until_s)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        wake_s = float("nan")
    if isnan(wake_s) or wake_s <= now:
        _refuse(now, f"cannot wait until {until_s!r} s; give a time after view.now")
    return wake_s


def applicant(kernel: Simulation, number: object) -> JobState:
    """Return the job to which an ``Admit`` or ``Reject`` refers.

    Raises:
        IllegalDecision: The job is not waiting for admission.
    """
    place = _whole(number)
    active = None if place is None else kernel.applicants.get(place)
    if active is None:
        _refuse(kernel.now, f"job {number!r} is not waiting for admission; choose a key from view.applicants")
    return active


def resident(kernel: Simulation, decision: Kill) -> tuple[JobState, RejectReason]:
    """Return the job that a ``Kill`` ends, and the reason for ending it.

    Raises:
        IllegalDecision: The job is not in the system, one of its runs started at the current time,
            or the reason is invalid.
    """
    number = decision.job
    if decision.reason not in tuple(RejectReason):
        _refuse(kernel.now, f"job {number!r} cannot be killed: {decision.reason!r} is not a RejectReason")
    place = _whole(number)
    active = None if place is None else kernel.frontier.jobs.get(place)
    if active is None:
        _refuse(kernel.now, f"job {number!r} is not in the system, so it cannot be killed; choose a key from view.jobs")
    if any(run.task.job is active and run.started_s == kernel.now for run in kernel.running.values()):
        _refuse(kernel.now, f"job {number!r} started at this very moment, so it cannot be killed yet")
    return active, RejectReason(decision.reason)


def _why_not_ready(kernel: Simulation, task: TaskState) -> str:
    """Return the reason why the task cannot start in this simulation now. The result is empty if it
    can start."""
    if task in kernel.frontier.ready:
        return ""
    number = task.job.number
    here = kernel.frontier.jobs.get(number)
    if number in kernel.applicants:
        return f"its job waits to be admitted; yield Admit({number}) first"
    if here is None:
        return f"its job is not in the system at {kernel.now:g} s; choose a task from view.ready"
    if here is not task.job:
        return "it belongs to another simulation (a fork?); choose the same task from this view.ready"
    if task.missing:
        parents = task.job.job.graph.parents[task.index]
        open_ = [task.job.tasks[parent].task.name for parent in parents if task.job.tasks[parent].unfinished]
        return f"it still waits for {', '.join(open_) or 'its parents'}; choose a task from view.ready"
    return "none of its instances wait to be started; choose a task from view.ready"


def _allotted(
    kernel: Simulation, task: TaskState, waiting: int, placement: object, machines: Sequence[NodeState]
) -> list[Allotted]:
    """Return the shares in a placement of ``waiting`` instances on ``machines``. First, each share
    is checked individually, and then all shares together.
    """
    if not isinstance(placement, tuple | list):
        _refuse_start(kernel, task, f"{placement!r} is not a placement; give a tuple of Share, as view.fit returns")
    if not placement:
        _refuse_start(kernel, task, "the placement is empty, but it must have a Share for each node")
    elastic, demand = task.task.elastic, task.demand
    demand.widen()
    shares = [_share(kernel, task, waiting, share, machines) for share in placement]
    total = sum(share.instances for share in shares)
    distinct = len({share.machine.index for share in shares}) == len(shares)
    if task.demand.gang:
        types = {share.machine.type for share in shares}
        if elastic is not None:
            _check_range(kernel, task, elastic, total)
            waiting = total
        if (
            total != waiting
            or not distinct
            or (len(types) != 1 and not may_mix_types(task.job.job, task.demand.demand))
        ):
            _refuse_start(
                kernel,
                task,
                f"a gang of {waiting} must start as a whole, on distinct nodes of one type; got {placement}",
            )
        if demand.bound:
            _check_domain(kernel, task, shares)
        if demand.counted:
            _check_counts(kernel, task, shares)
    elif not distinct:
        _refuse_start(kernel, task, f"a node occurs twice in {placement}; give each node one Share")
    elif total > waiting:
        _refuse_start(kernel, task, f"{count_of(total, 'instance')} placed, but only {waiting} waiting")
    return shares


def _check_domain(kernel: Simulation, task: TaskState, shares: Sequence[Allotted]) -> None:
    """Reject a placement unless all of its nodes are in the same domain of the level that the job
    requires.
    """
    terms, request = task.demand.terms, task.job.job.request
    assert terms is not None
    assert request is not None
    nodes = sum([share.machine.bit for share in shares])
    if not any(nodes & ~domain == 0 for domain in terms.domains):
        names = ", ".join(share.machine.node.name for share in shares[:5])
        _refuse_start(
            kernel,
            task,
            f"its job requires nodes of one {request.level or request.constraint}, but {names} are in several",
        )


def _check_counts(kernel: Simulation, task: TaskState, shares: Sequence[Allotted]) -> None:
    """Reject a placement unless the nodes of the gang meet the counts in the constraint of its job."""
    terms, request = task.demand.terms, task.job.job.request
    assert terms is not None
    assert request is not None
    if nodes_by_counts([share.machine.index for share in shares], task.demand.gang, terms.counts) is None:
        names = ", ".join(share.machine.node.name for share in shares[:5])
        _refuse_start(kernel, task, f"its job requires nodes that meet {request.constraint}, but {names} do not")


def _check_range(kernel: Simulation, task: TaskState, elastic: Elastic, total: int) -> None:
    """Reject a number of instances outside the range of an elastic task."""
    if elastic.least <= total <= elastic.most:
        return
    side = "below its minimum" if total < elastic.least else "above its maximum"
    _refuse_start(kernel, task, f"{total} instances are {side}; it runs as {elastic.least} to {elastic.most} instances")


def _share(kernel: Simulation, task: TaskState, waiting: int, share: object, machines: Sequence[NodeState]) -> Allotted:
    if not isinstance(share, tuple) or len(share) != 3:
        _refuse_start(kernel, task, f"{share!r} is not a Share(node, instances, gpu)")
    node, instances = _whole(share[0]), _whole(share[1])
    if node is None or not 0 <= node < len(machines):
        _refuse_start(kernel, task, f"there is no node {share[0]!r}; nodes are the integers 0..{len(machines) - 1}")
    if instances is None or instances < 1:
        _refuse_start(kernel, task, f"{share[1]!r} instances; there must be at least one, as an integer")
    if instances > waiting and task.task.elastic is None:
        _refuse_start(kernel, task, f"{count_of(instances, 'instance')} placed, but only {waiting} waiting")
    machine, demand = machines[node], task.demand
    name = machine.node.name
    if machine.type not in demand.types:
        _refuse_start(kernel, task, f"node {name!r} is not of a type it may run on; task.demand.types lists those")
    if not machine.up:
        _refuse_start(kernel, task, f"node {name!r} is down")
    room = machine.room(demand)
    if room < instances:
        asked = f"node {name!r} has no room for {instances} x {tuple(demand.demand)}"
        _refuse_start(kernel, task, f"{asked}, only for {room}; view.fit(task) finds room")
    return Allotted(machine, instances, None if share[2] is None else _gpu(kernel, task, machine, instances, share[2]))


def _gpu(kernel: Simulation, task: TaskState, machine: NodeState, instances: int, named: object) -> int:
    """Return the index of the GPU that a share names."""
    name, gpu = machine.node.name, _whole(named)
    if not task.demand.share:
        _refuse_start(
            kernel, task, f"it requests no share of a GPU, so a placement may not name a GPU; got gpu={named!r}"
        )
    if gpu is None or not 0 <= gpu < machine.gpus:
        _refuse_start(
            kernel, task, f"node {name!r} has no GPU {named!r}; its GPUs are the integers 0..{machine.gpus - 1}"
        )
    if machine.room_on(gpu, task.demand) < instances:
        _refuse_start(kernel, task, f"GPU {gpu} of node {name!r} has no room for {instances} such shares")
    return gpu


def _whole(value: object) -> int | None:
    """Return ``value`` as an integer (including NumPy's integers), or ``None`` for booleans, floats
    and everything else.
    """
    if type(value) is int:
        return value
    try:
        return None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _refuse_start(kernel: Simulation, task: TaskState, why: str) -> NoReturn:
    _refuse(kernel.now, f"cannot start {task.name}: {why}")


def _refuse(now: float, why: str) -> NoReturn:
    raise IllegalDecision(f"at {now:g} s: {why}")
