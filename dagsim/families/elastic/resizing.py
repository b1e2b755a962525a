"""Policies that choose the GPUs of elastic tasks: Pollux, Sia, and dagsim's own policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.elastic.genetic import EqualNodes, PolluxSearch
from dagsim.families.elastic.goodput import BatchLimits, GoodputModel
from dagsim.families.elastic.sia import Configuration, choose_configurations
from dagsim.families.elastic.training_jobs import GoodputProgress, Training
from dagsim.model import Decision, Elastic, Placement, Preempt, Share, Start, Wait
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import ClusterView, Run, TaskState
from dagsim.systems.cluster.policies.placement import placing, start_of

_LEAST_GAP_S = 1e-3
_UNKNOWN = 1e-4
"""Goodput in Sia's program of a configuration that a job may not have yet."""


class _ElasticTask:
    """An elastic task in the system, with the data that policies need.

    ``piece`` is the part of the task that is waiting or running. ``run`` is its run, or None while
    it is waiting. ``starts`` counts how often this policy has started the task.
    """

    def __init__(self, piece: TaskState, run: Run | None, starts: int) -> None:
        elastic = piece.task.elastic
        if elastic is None or not isinstance(piece.training, GoodputProgress | Training):
            raise ConfigError(f"elastic policies need a goodput model, but the elastic task {piece.name} has none")
        self.order = piece.order
        self.elastic: Elastic = elastic
        self.arrival_s = piece.job.job.arrival_s
        self.piece, self.run, self.starts = piece, run, starts

    @property
    def domains(self) -> tuple[int, ...]:
        """The sets of nodes among which the task must choose one for all of its GPUs. It is empty
        if the GPUs may be anywhere.
        """
        terms = self.piece.demand.terms
        return () if terms is None else tuple(terms.domains)

    @property
    def training(self) -> GoodputProgress | Training:
        training = self.piece.training
        assert isinstance(training, GoodputProgress | Training)
        return training

    @property
    def restarts(self) -> int:
        """The number of restarts, or -1 before the first start."""
        return self.starts - 1

    @property
    def limits(self) -> BatchLimits:
        """Batch sizes of the application."""
        training = self.training
        if isinstance(training, Training):
            return training.job.profile.limits
        return next(iter(training.task.models.values())).limits

    def most_replicas(self, batch: int) -> int:
        """Return the maximum number of GPUs for a batch."""
        return min(self.elastic.most, batch // self.limits.local_min)

    def restart_factor(self, now: float, restart_s: float) -> float:
        """Return the share of the task's time that would be productive if it restarted one more
        time, or 1 if the task is young.
        """
        age_s = now - self.arrival_s
        return max(age_s - max(self.restarts, 0) * restart_s, 0.0) / (age_s + restart_s) if age_s > restart_s else 1.0


class _ElasticTasks:
    """The elastic tasks in the system. This class changes their GPUs, and records how often each
    task was started.
    """

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}

    def read(self, view: ClusterView) -> list[_ElasticTask]:
        """Return all tasks in order of arrival.

        Raises:
            ConfigError: A task has no goodput model.
        """
        runs = {run.task.order: run for run in view.running.values() if run.task.training is not None}
        pieces = {task.order: task for task in view.ready if task.training is not None}
        pieces |= {order: run.task for order, run in runs.items()}
        self._starts = {order: self._starts.get(order, 0) for order in sorted(pieces)}
        return [_ElasticTask(pieces[order], runs.get(order), starts) for order, starts in self._starts.items()]

    def change(
        self, view: ClusterView, tasks: Sequence[_ElasticTask], placements: Mapping[int, Placement | None]
    ) -> Iterator[Decision]:
        """Stop the running tasks in ``placements``, then start all tasks in it that have a
        placement."""
        for task in tasks:
            if task.order in placements and task.run is not None:
                yield Preempt(task.run.id)
        waiting = {task.order: task for task in view.ready}
        for order, placement in placements.items():
            piece = waiting.get(order)
            if piece and placement and all(_has_room(view, piece, share) for share in placement):
                self._starts[order] += 1
                yield Start(piece, placement)


class _Turns:
    """The times at which a policy decides. It may decide every ``interval_s`` seconds, and does so
    if the state has changed or ``renew_s`` seconds have passed.

    Raises:
        ConfigError: A time has the wrong sign.
    """

    def __init__(self, policy: str, interval_s: float, renew_s: float) -> None:
        _check_interval(policy, interval_s)
        if not renew_s >= 0:
            raise ConfigError(f"{policy}: renew_s must be 0 or more, got {renew_s!r}")
        self._interval_s, self._renew_s = interval_s, renew_s
        self.next_s = self._decided_s = -inf
        self._state: object = None

    def changed(self, now: float, state: object) -> bool:
        """Return True if there is something to decide, either now or at ``next_s``."""
        return state != self._state or now >= self._decided_s + self._renew_s

    def begin(self, now: float, state: object) -> bool:
        """Return True if an interval begins in which there is something to decide."""
        if now < self.next_s:
            return False
        due = self.changed(now, state)
        if due:
            self._state, self._decided_s = state, now
        self.next_s = now + self._interval_s
        return due


class _Resizing(ABC):
    """The base class of policies that choose the GPUs of elastic tasks. All other tasks take
    precedence. They start oldest first where they fit, and elastic tasks leave GPUs free for those
    that are still waiting.
    """

    polls = True
    """True if the policy must decide again although nothing happened."""

    def __init__(self, policy: str, interval_s: float, renew_s: float) -> None:
        self._turns = _Turns(policy, interval_s, renew_s)
        self._tasks = _ElasticTasks()

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        for task in view.ready:
            while task.training is None and task.waiting and view.fits(task):
                if not (start := start_of(_BEST_FIT, view, task)):
                    break
                yield from start
        tasks = self._tasks.read(view)
        if not tasks:
            return
        state, turns = self._state(view, tasks), self._turns
        waits = self.polls or turns.changed(view.now, state)
        early = view.now < turns.next_s
        if waits and turns.begin(view.now, state):
            yield from self._allocate(view, tasks)
            waits = self.polls
        # Pollux lets every task wait for one interval before starting it
        young = any(task.arrival_s == view.now for task in tasks)
        if waits and (early or view.running or view.pending or young):
            yield Wait(turns.next_s)

    def _state(self, view: ClusterView, tasks: Sequence[_ElasticTask]) -> object:
        """Return the state on which a new allocation depends, apart from the time."""
        return [(task.order, _most_now(task)) for task in tasks], _room(view)

    @abstractmethod
    def _allocate(self, view: ClusterView, tasks: list[_ElasticTask]) -> Iterator[Decision]:
        """Change the GPUs of the elastic tasks."""


_BEST_FIT = placing("best-fit").place


class Pollux(_Resizing):
    """Runs Pollux's search for the allocation with the best mean speed-up every ``interval_s``
    seconds (``PolluxSearch``; Qiao et al., OSDI 2021).

    The policy supports only elastic tasks (the key ``elastic``) on equal nodes. A task whose nodes
    change is restarted. The search runs for ``generations`` generations with ``population``
    candidates each, and draws random numbers from ``seed``. If ``renew_s`` is above 0, the search
    only runs every ``renew_s`` seconds, and after a task has arrived, has ended or may have more
    GPUs than before. The policy is preemptive. It is based on Pollux, and
    ``scripts/validate_pollux.py`` checks its mean results.

    Raises:
        ConfigError: The interval is not positive; or, during a simulation, there are other tasks or
            unequal nodes, which the policy does not support.
    """

    def __init__(
        self,
        interval_s: float = 60.0,
        generations: int = 50,
        population: int = 100,
        seed: int = 0,
        renew_s: float = 0.0,
    ) -> None:
        super().__init__("pollux", interval_s, renew_s)
        self._search = PolluxSearch(seed, population, generations)

    def _state(self, view: ClusterView, tasks: Sequence[_ElasticTask]) -> object:
        return super()._state(view, tasks), [task.arrival_s < view.now for task in tasks]

    def _allocate(self, view: ClusterView, tasks: list[_ElasticTask]) -> Iterator[Decision]:
        cluster = equal_nodes(view)
        _refuse_levels("pollux", [task.piece for task in tasks])
        if any(run.task.training is None for run in view.running.values() if run.gpus):
            raise ConfigError(
                "pollux cannot mix elastic tasks with other tasks; make all tasks elastic with elastic: "
                "{default: by-size}"
            )
        [gpu] = {type_ for machine in view.machines.list if (type_ := view.gpu_types[machine.type]) is not None}
        jobs = {str(task.order): _Searched(task, gpu.name) for task in tasks}
        cluster.allocations = {
            str(task.order): [node for node, count in _held(task.run) for _ in range(count)]
            for task in tasks
            if task.run is not None
        }
        allocations = self._search.allocate(int(view.now), jobs, cluster)
        changed: dict[int, Placement | None] = {}
        for task in tasks:
            nodes = allocations.get(str(task.order), [])
            nodes = nodes if len(nodes) >= task.elastic.least else []
            if nodes != cluster.allocations.get(str(task.order), []):
                changed[task.order] = tuple([Share(node, len(list(group))) for node, group in groupby(nodes)])
        yield from self._tasks.change(view, tasks, changed)


class _Searched:
    """The properties of a task that ``PolluxSearch`` uses."""

    def __init__(self, task: _ElasticTask, gpu: str) -> None:
        self._task = task
        self.arrival_s, self.restarts, self.limits = task.arrival_s, task.restarts, task.limits
        self.goodput = task.training.model(gpu)
        self.largest_measured = max(task.training.largest_measured, task.elastic.least // 2)

    def most_replicas(self, batch: int) -> int:
        """Return the maximum number of GPUs for a batch."""
        return self._task.most_replicas(batch)


class Sia(_Resizing):
    """Every ``interval_s`` seconds, solves Sia's integer program, which gives each task at most one
    configuration of GPU type, nodes and GPUs (``choose_configurations``; Jayaram Subramanya et al.,
    SOSP 2023).

    In the objective, each task without GPUs costs ``waiting_cost``. ``power`` is the exponent of
    the goodputs in the objective, and is negative. Smaller values favour the tasks with the lowest
    goodput.

    The policy is for elastic tasks (the key ``elastic``); other tasks start first, oldest first. A
    configuration is either a power-of-two number of GPUs on one node, or a number of whole nodes. A
    task may have at most twice as many GPUs as it has run on. A restarting task keeps its
    configuration. The integer program is solved again when a task arrives, ends or may have more
    GPUs than before, and otherwise every ``renew_s`` seconds. The policy is preemptive. It is based
    on Sia, and ``scripts/validate_sia.py`` checks its program.

    Raises:
        ConfigError: A time or ``power`` has the wrong sign.
    """

    def __init__(
        self, interval_s: float = 60.0, renew_s: float = 600.0, power: float = -0.5, waiting_cost: float = 1.1
    ) -> None:
        super().__init__("sia", interval_s, renew_s)
        if not power < 0:
            raise ConfigError(f"sia: power must be negative, got {power!r}")
        if not waiting_cost >= 0:
            raise ConfigError(f"sia: waiting_cost must be 0 or more, got {waiting_cost!r}")
        self.power, self.waiting_cost = power, waiting_cost

    def _state(self, view: ClusterView, tasks: Sequence[_ElasticTask]) -> object:
        return super()._state(view, tasks), [_restarts(task) for task in tasks]

    def _allocate(self, view: ClusterView, tasks: list[_ElasticTask]) -> Iterator[Decision]:
        nodes = _room(view)
        options = _configurations(nodes)
        goodputs = np.array([_goodputs(task, options, nodes, sia=True) for task in tasks])
        present = [_present(task, options, view) for task in tasks]
        choice = choose_configurations(
            goodputs,
            options,
            _capacity(view, nodes),
            present=present,
            restart_factors=[task.restart_factor(view.now, task.elastic.restart_s) for task in tasks],
            locked=[row for row, task in enumerate(tasks) if _restarts(task) and present[row] is not None],
            power=self.power,
            waiting_cost=self.waiting_cost,
        )
        # If a task may not use the configuration that was chosen for it yet, it gets no GPUs.
        chosen = [None if at is None or goodputs[row, at] <= _UNKNOWN else at for row, at in enumerate(choice.chosen)]
        wanted = {task.order: None if at is None else options[at] for task, at in zip(tasks, chosen, strict=True)}
        yield from self._tasks.change(view, tasks, _moves(view, tasks, wanted, nodes))


class EftResize(_Resizing):
    """dagsim's own policy for elastic tasks: EFT-wait with a choice of the number of GPUs.

    The policy predicts when each task would finish on each configuration of GPU type, nodes and
    GPUs, from the goodput and the estimate of the remaining work; a change of the configuration
    includes the delay of a restart. A configuration is either a power-of-two number of GPUs on one
    node, or a number of whole nodes. All tasks begin without GPUs. The next GPUs always go to the
    task for which the reciprocal of the remaining time grows most per GPU, until no GPUs are left
    or no task would finish sooner. Short tasks therefore come first, and get more GPUs only as long
    as these help them more than they would help another task. The policy makes decisions at events
    that are at least ``gap_s`` seconds apart. A task keeps its GPUs unless another configuration is
    better by at least the fraction ``hold``.

    The policy is for elastic tasks (the key ``elastic``); other tasks start first, oldest first. It
    uses estimates, and is preemptive.

    Raises:
        ConfigError: A parameter is negative.
    """

    polls = False

    def __init__(self, gap_s: float = 60.0, hold: float = 0.1) -> None:
        for name, number in (("gap_s", gap_s), ("hold", hold)):
            if not number >= 0:
                raise ConfigError(f"elastic-eft-wait: {name} must be 0 or more, got {number!r}")
        super().__init__("elastic-eft-wait", max(gap_s, _LEAST_GAP_S), inf)
        self.hold = hold

    def _allocate(self, view: ClusterView, tasks: list[_ElasticTask]) -> Iterator[Decision]:
        nodes = _room(view)
        options = _configurations(nodes)
        present = [_present(task, options, view) for task in tasks]
        pairs = zip(tasks, present, strict=True)
        values = np.array([self._values(view, task, options, nodes, at) for task, at in pairs])
        chosen = _best_per_gpu(values, options, _capacity(view, nodes))
        wanted = {task.order: None if at is None else options[at] for task, at in zip(tasks, chosen, strict=True)}
        yield from self._tasks.change(view, tasks, _moves(view, tasks, wanted, nodes))

    def _values(
        self,
        view: ClusterView,
        task: _ElasticTask,
        options: tuple[Configuration, ...],
        nodes: _NodesByType,
        present: int | None,
    ) -> np.ndarray:
        """Return, for each configuration, the reciprocal of the time in which the task would end
        there, or 0 if it may not run there."""
        speeds, names = _goodputs(task, options, nodes), [None if gpu is None else gpu.name for gpu in view.gpu_types]
        asked = task.piece.task.instances
        left_s = np.array([task.piece.seconds[names.index(option.type)] for option in options])
        if task.run is not None and task.run.progress is not None:
            left_s *= task.run.work_left_s(view.now) / max(task.run.estimate_s, 1e-9)
        asked_speeds = {type_: _asked_goodput(task, type_, asked, options) for type_ in {one.type for one in options}}
        speeds /= np.array([asked_speeds[option.type] for option in options])
        with np.errstate(divide="ignore", invalid="ignore"):
            taken_s = left_s / speeds
            restarted = np.full(len(options), task.elastic.restart_s)
            if present is not None:
                taken_s *= 1 + self.hold
                taken_s[present] /= 1 + self.hold
                assert task.run is not None
                restarted[present] = 0.0
            values: np.ndarray = 1 / np.maximum(taken_s + restarted, 1e-9)
        values[~np.isfinite(values) | (speeds <= 0)] = 0.0
        return values


def _refuse_levels(policy: str, tasks: Iterable[TaskState]) -> None:
    """Reject tasks whose GPUs must be close together in the network."""
    for task in tasks:
        if task.demand.terms is not None and task.demand.terms.domains:
            request = task.job.job.request
            raise ConfigError(
                f"{policy} does not support topologies, but job {task.job.job.id!r} requires nodes of one "
                f"{request.level if request else 'level'} (request: level); allowed: policy sia or elastic-eft-wait, "
                "or level_required: false"
            )


def _check_interval(policy: str, interval_s: float) -> None:
    if not interval_s > 0:
        raise ConfigError(f"{policy}: interval_s must be positive, got {interval_s!r}")


def equal_nodes(view: ClusterView) -> EqualNodes:
    """Return the nodes of the cluster for a policy that needs nodes of one size and type.

    Raises:
        ConfigError: The nodes differ.
    """
    sizes = {(machine.gpus, machine.type) for machine in view.machines.list}
    if len(sizes) != 1:
        counts = sorted({gpus for gpus, _ in sizes})
        kinds = "several GPU types" if len(counts) == 1 else f"nodes of {counts} GPUs"
        raise ConfigError(f"this policy needs nodes of one size and GPU type, got {kinds}")
    return EqualNodes(len(view.machines.list), sizes.pop()[0])


class _Nodes(NamedTuple):
    """The nodes of a GPU type: the number of GPUs on the largest node, and the GPUs on each node
    that elastic tasks hold or may take.
    """

    size: int
    free: dict[int, int]


_NodesByType = dict[str, _Nodes]


def _room(view: ClusterView) -> _NodesByType:
    """Return the nodes that are up, by GPU type."""
    held = Counter({machine.index: machine.idle for machine in view.machines.list})
    for run in view.running.values():
        if run.task.training is not None:
            held.update(dict(_held(run)))
    nodes: _NodesByType = {}
    for machine in view.machines.list:
        gpu = view.gpu_types[machine.type]
        if gpu is not None and machine.up:
            size, free = nodes.get(gpu.name, (0, {}))
            nodes[gpu.name] = _Nodes(max(size, machine.gpus), free | {machine.index: held[machine.index]})
    return nodes


def _capacity(view: ClusterView, nodes: _NodesByType) -> dict[str, int]:
    """Return how many GPUs of each type elastic tasks may use. GPUs for which other tasks are
    waiting do not count.
    """
    capacity = {type_: whole_sum(one.free.values()) for type_, one in nodes.items()}
    for task in view.ready:
        gpu = view.gpu_types[task.seconds.index(task.best_s)]
        if task.training is None and gpu is not None and gpu.name in capacity:
            wanted = ceil(task.demand.demand.gpus * task.waiting)
            capacity[gpu.name] = max(0, capacity[gpu.name] - wanted)
    return capacity


def _configurations(nodes: _NodesByType) -> tuple[Configuration, ...]:
    """Return the configurations on each type: those with a power-of-two number of GPUs on one node,
    and those with whole nodes."""
    options = []
    for type_, (size, free) in nodes.items():
        counts = [2**power for power in range(size.bit_length()) if 2**power < size] + [size]
        options += [Configuration(type_, 1, count) for count in counts]
        whole = sum(count == size for count in free.values())
        options += [Configuration(type_, count, count * size) for count in range(2, whole + 1)]
    return tuple(options)


@lru_cache(maxsize=4096)
def _model_goodputs(model: GoodputModel, options: tuple[Configuration, ...]) -> np.ndarray:
    """Return the model's goodput on each configuration, or 0 if even its largest batch is too small."""
    goodputs = np.zeros(len(options))
    allowed = [at for at, one in enumerate(options) if one.gpus * model.limits.local_min <= model.limits.largest]
    if allowed:
        counts = [(options[at].nodes, options[at].gpus) for at in allowed]
        goodputs[allowed] = model.best(*np.array(counts).T).goodput
    goodputs.setflags(write=False)
    return goodputs


def _largest_group(domains: Sequence[int], of_type: _Nodes) -> int:
    """Return the maximum number of nodes of a type in one domain."""
    return max([sum([domain >> node & 1 for node in of_type.free]) for domain in domains])


def _goodputs(
    task: _ElasticTask, options: tuple[Configuration, ...], nodes: _NodesByType, *, sia: bool = False
) -> np.ndarray:
    """Return the goodput of the task on each configuration. It is 0 outside the task's range, on
    more GPUs per node than were measured, and on more nodes of a GPU type than a domain contains.

    If ``sia`` is True, goodputs are divided by the task's smallest goodput, and are very small for
    configurations that the task may not have yet.
    """
    training, goodputs = task.training, np.zeros(len(options))
    most = _most_now(task) if sia else task.elastic.most
    for type_ in dict.fromkeys(option.type for option in options):
        model = training.model(type_)
        of_type = np.array([option.type == type_ for option in options])
        if model is not None:
            goodputs[of_type] = _model_goodputs(model, options)[of_type]
        elif training.runs_on(type_):  # nothing is measured yet, so assume linear speedup
            goodputs[of_type] = [option.gpus for option in options if option.type == type_]
    counts = np.array([option.gpus for option in options])
    goodputs[(counts < task.elastic.least) | (counts > most)] = 0.0
    if isinstance(task.training, Training):  # exclude placements that were not measured
        fullest = task.training.job.profile.per_node
        goodputs[[option.gpus > fullest * option.nodes for option in options]] = 0.0
    if task.domains:
        largest = {type_: _largest_group(task.domains, of_type) for type_, of_type in nodes.items()}
        goodputs[[option.nodes > largest[option.type] for option in options]] = 0.0
    if sia and goodputs.any():
        goodputs /= goodputs[goodputs > 0].min()
    return np.where(goodputs > 0, goodputs, _UNKNOWN) if sia else goodputs


def _asked_goodput(task: _ElasticTask, type_: str, asked: int, options: Sequence[Configuration]) -> float:
    """Return the goodput on the requested number of GPUs, on as few nodes of a type as possible, or
    infinity if the task cannot run there."""
    model = task.training.model(type_)
    if model is None:
        return float(asked) if task.training.runs_on(type_) else inf
    size = max(option.gpus for option in options if option.type == type_ and option.nodes == 1)
    return _goodput_of(model, -(-asked // size), asked) or inf


@lru_cache(maxsize=4096)
def _goodput_of(model: GoodputModel, nodes: int, gpus: int) -> float:
    return float(model.best(nodes, gpus).goodput)


def _most_now(task: _ElasticTask) -> int:
    """Return the largest number of GPUs that the task may have now: at most twice as many as it has
    run with.
    """
    return min(task.elastic.most, max(2 * task.training.largest_measured, task.elastic.least))


def _has_room(view: ClusterView, task: TaskState, share: Share) -> bool:
    return view.machines.list[share.node].room(task.demand) >= share.instances


def _restarts(task: _ElasticTask) -> bool:
    """Return True if the task holds GPUs but is not training yet."""
    return task.run is not None and task.run.computing_s is None


def _held(run: Run | None) -> list[tuple[int, int]]:
    """Return each node that a run holds, with the number of GPUs there."""
    return [] if run is None else [(machine.index, count) for machine, count, *_ in run.held]


def _present(task: _ElasticTask, options: Sequence[Configuration], view: ClusterView) -> int | None:
    """Return the index of the task's configuration, or None if the task is waiting."""
    if task.run is None:
        return None
    gpu, held = view.gpu_types[task.run.type], _held(task.run)
    have = Configuration("" if gpu is None else gpu.name, len(held), whole_sum(count for _, count in held))
    return options.index(have) if have in options else None


def _best_per_gpu(values: np.ndarray, options: Sequence[Configuration], gpus: Mapping[str, int]) -> list[int | None]:
    """Return the option that each task gets. The next GPUs always go to the task whose value grows
    most per GPU, until no GPUs are left or no value grows. A task may move to a better type if this
    has free GPUs. ``values`` has the shape (tasks, options).
    """
    tasks = len(values)
    chosen: list[int | None] = [None] * tasks
    counts = np.array([option.gpus for option in options], float)
    types = list(gpus)
    of_type = np.array([types.index(option.type) for option in options])
    free = np.array([gpus[type_] for type_ in types], float)
    value, count, type_of = np.zeros(tasks), np.zeros(tasks), np.full(tasks, -1)
    while tasks and options:
        more = counts[None] - count[:, None]
        here = type_of[:, None] == of_type
        fits = np.where(here, more, counts[None]) <= free[of_type][None]
        gains = np.where(fits, (values - value[:, None]) / np.maximum(more, 1.0), 0.0)
        best = int(gains.argmax())
        if gains.flat[best] <= 0:
            break
        row, option = divmod(best, len(options))
        if type_of[row] >= 0:
            free[type_of[row]] += count[row]
        free[of_type[option]] -= counts[option]
        chosen[row], type_of[row] = option, of_type[option]
        value[row], count[row] = values[row, option], counts[option]
    return chosen


def _moves(
    view: ClusterView,
    tasks: Sequence[_ElasticTask],
    wanted: Mapping[int, Configuration | None],
    nodes: _NodesByType,
) -> dict[int, Placement | None]:
    """Return the placements of all tasks whose configuration changes, or None for tasks that stop.
    A task that already has its configuration keeps its GPUs, unless the other tasks on its GPU type
    would then not fit.
    """
    moves: dict[int, Placement | None] = {}
    for type_, of_type in nodes.items():
        here = [task for task in tasks if (one := wanted[task.order]) is not None and one.type == type_]
        kept = {task.order for task in here if _has(view, task, wanted[task.order])}
        placements = _packed(here, wanted, kept, of_type)
        if placements is None:
            kept = {task.order for task in here if task.run is not None and task.run.started_s == view.now}
            placements = _packed(here, wanted, kept, of_type) or {}
        for task in here:
            if task.order in kept:
                continue
            placement = placements.get(task.order)
            if placement is None or task.run is None or set(placement) != {Share(*one) for one in _held(task.run)}:
                moves[task.order] = placement
    for task in tasks:
        if wanted[task.order] is None and task.run is not None:
            moves[task.order] = None
    running = {task.order for task in tasks if task.run is not None}
    return {order: move for order, move in moves.items() if move or order in running}


def _together(domains: Sequence[int], nodes: list[int], count: int) -> list[int]:
    """Return ``count`` of the nodes, all in the smallest domain that has enough of them. Return no
    nodes if there is no such domain."""
    groups = [[node for node in nodes if domain >> node & 1] for domain in domains] if domains else [nodes]
    return min([group for group in groups if len(group) >= count], key=len, default=[])[:count]


def _has(view: ClusterView, task: _ElasticTask, wanted: Configuration | None) -> bool:
    return wanted is not None and _present(task, [wanted], view) == 0


def _packed(
    tasks: Sequence[_ElasticTask],
    wanted: Mapping[int, Configuration | None],
    kept: set[int],
    nodes: _Nodes,
) -> dict[int, Placement] | None:
    """Place the tasks that do not keep their GPUs, largest first, on the fullest nodes on which
    they fit. Return None if a task does not fit."""
    size, free = nodes.size, dict(nodes.free)
    for task in tasks:
        if task.order in kept:
            for node, count in _held(task.run):
                free[node] -= count
    placements: dict[int, Placement] = {}
    sizes = {order: one.gpus for order, one in wanted.items() if one is not None}
    for task in sorted(tasks, key=lambda task: (-sizes[task.order], task.order)):
        if task.order in kept:
            continue
        count, shares = sizes[task.order], []
        if count > size:
            empty = [node for node, count in free.items() if count == size]
            shares = [Share(node, size) for node in _together(task.domains, empty, count // size)]
            if not shares and task.domains:
                continue  # this task does not hold up the others
        elif fitting := [node for node in free if free[node] >= count]:
            shares = [Share(min(fitting, key=lambda node: (free[node], node)), count)]
        if sum(share.instances for share in shares) < count:
            return None
        for share in shares:
            free[share.node] -= share.instances
        placements[task.order] = tuple(shares)
    return placements
