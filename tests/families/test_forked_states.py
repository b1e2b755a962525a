"""A fork of a simulation with every model that has state shares nothing with it that can change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass, replace
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from dagsim.families.elastic.goodput import BatchLimits, GoodputModel, GradientNoise, ThroughputModel
from dagsim.families.elastic.training_jobs import GoodputTraining
from dagsim.families.fabric.collectives import StepTraffic
from dagsim.families.fabric.communication import ModelTraffic
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.families.fabric.topologies import Island
from dagsim.families.sharing.pairs import MeasuredPairs
from dagsim.model import (
    Admit,
    Cluster,
    Decision,
    Edge,
    Elastic,
    Job,
    JobSuspension,
    Join,
    Node,
    OnDemand,
    Preempt,
    QueueTree,
    Request,
    Start,
    Task,
    TaskGraph,
    Wait,
    gpu_type,
)
from dagsim.systems.cluster import ClusterKernel, ClusterView, Models, MovingDelay, Preemption
from dagsim.systems.cluster.forks import AHEAD, COPIED, SAME, Forked
from dagsim.systems.cluster.models.failures import SpotCapacity
from dagsim.systems.cluster.network import Storage
from dagsim.systems.seam import Conversation

Policy = Callable[[ClusterView], Iterator[Decision]]


T4 = gpu_type("T4")


NODES = tuple(Node(name, T4, 4, 8, 64) for name in "abc")


def first_fit(view: ClusterView) -> Iterator[Decision]:
    for number in view.applicants:
        yield Admit(number)
    for task in view.ready:
        alone = [run for run in view.running.values() if not run.beside and run.gpus == 4 == task.task.gpus]
        placement = view.fit(task)
        if placement is not None:
            yield Start(task, placement)
        elif alone and view.sharing is not None:
            yield Join(task, alone[0].id)


def stopping(view: ClusterView) -> Iterator[Decision]:
    """Stop the oldest run after each 7 s, and start it again 3 s later."""
    due = view.now % 7 < 1 and [run for run in view.running.values() if run.started_s < view.now - 3]
    if due:
        yield Preempt(due[0].id)
    if view.now % 7 >= 3:
        yield from first_fit(view)
    yield Wait(view.now + 1.0)


def on_the_network() -> tuple[ClusterKernel, Policy]:
    tasks = (Task("p", 12.0, 2, memory_gb=6, cpus=1), Task("c", 15.0, 8, True, memory_gb=6, model="net"))
    jobs = [Job(f"d{n}", TaskGraph(tasks, (Edge(0, 1, 4e9),)), 3.0 * n) for n in range(4)]
    request = Request(after=("afterok:d0",), licences=(("matlab", 1),))
    jobs.append(Job.single("held", Task("t", 9.0, gpus=0.5), 11.0, request=request))
    models = Models(
        network=SharedNetwork(Island(rails=1, bandwidth_gb_s=1.0), Storage(("c",), default_gb=1.0)),
        communication=ModelTraffic(default=StepTraffic(1e8, 1.0, calls=0)),
        preemption=Preemption(checkpoint_interval_s=5.0, restart_s=1.0),
        failures=[SpotCapacity(20.0, 5.0, 4.0)],
        queues=QueueTree(licences={"matlab": 1}),
    )
    return ClusterKernel(Cluster(NODES), jobs, models, seed=2), stopping


def sharing() -> tuple[ClusterKernel, Policy]:
    pairs = MeasuredPairs({"T4": {(("bert", None), ("bert", None)): (0.5, 0.8)}})
    jobs = [Job.single(f"s{n}", Task("t", 9.0, gpus=4.0, cpus=0.5, model="bert"), 1.0 * n) for n in range(9)]
    jobs.append(Job.single("cpu", Task("t", 5.0, gpus=0, cpus=2, memory_gb=1), 9.0))
    models = Models(sharing=pairs, setup=MovingDelay(2.0), admission=True)
    return ClusterKernel(Cluster(NODES), jobs, models), first_fit


def elastic() -> tuple[ClusterKernel, Policy]:
    throughput = ThroughputModel(*[0.1] * 6, gamma=1.5)
    model = GoodputModel(throughput, GradientNoise(1.0, 1.0), BatchLimits(64, 512, 32, 64))
    training = GoodputTraining({"": model}, samples=20_000)
    task = Task("t", 60.0, 2, True, elastic=Elastic(1, 4, training, 1.0))
    jobs = [Job.single(f"e{n}", task, 5.0 * n) for n in range(3)]
    return ClusterKernel(
        Cluster(NODES), jobs, Models(preemption=Preemption(checkpoint_interval_s=6.0, checkpoint_write_s=1.0))
    ), first_fit


def on_demand() -> tuple[ClusterKernel, Policy]:
    rules = OnDemand((3.0, 5.0), 4.0, 1.0), OnDemand(2.0, 4.0, trigger="pending", scan_s=1.0)
    nodes = tuple([replace(node, on_demand=rule) for node, rule in zip(NODES, rules, strict=False)])
    jobs = [Job.single(f"o{n}", Task("t", 3.0, gpus=4.0), 4.0 * n) for n in range(9)]
    return ClusterKernel(Cluster(nodes), jobs, Models(failures=[SpotCapacity(20.0, 5.0, 4.0)]), seed=3), first_fit


def suspended() -> tuple[ClusterKernel, Policy]:
    jobs = [Job.single(f"s{n}", Task("t", 6.0, gpus=1.0), 2.0 * n) for n in range(9)]
    queues = QueueTree(suspensions=(JobSuspension("s1", 3.0, 9.0), JobSuspension("s3", 8.0, 12.0)))
    return ClusterKernel(Cluster(NODES), jobs, Models(queues=queues), seed=3), first_fit


def fields(state: Forked) -> dict[str, str]:
    declared: dict[str, str] = {}
    for base in type(state).__mro__:
        slots = base.__dict__.get("__slots__", {})
        declared |= slots if isinstance(slots, dict) else {}
    return declared


def is_constant(value: Any) -> bool:
    """True if nothing can change in the value."""
    if isinstance(value, tuple | frozenset):
        return all(map(is_constant, value))
    if isinstance(value, MappingProxyType):
        return all(map(is_constant, value.values()))
    frozen = is_dataclass(value) and value.__dataclass_params__.frozen  # type: ignore[union-attr]
    return value is None or isinstance(value, int | float | str | Enum) or bool(frozen)


def parts(value: Any) -> Iterable[Any]:
    """What a value consists of and a fork copies."""
    if isinstance(value, Forked):
        return [getattr(value, name) for name, way in fields(value).items() if way in (COPIED, AHEAD)]
    if isinstance(value, dict):
        return [*dict.keys(value), *dict.values(value)]
    return value if isinstance(value, tuple | list | set | deque) else ()


def reached(kernel: ClusterKernel) -> dict[int, Any]:
    """Everything that a kernel's fork copies, by ``id``."""
    seen: dict[int, Any] = {}
    pending: list[Any] = [kernel]
    while pending:
        value = pending.pop()
        if id(value) not in seen:
            seen[id(value)] = value
            pending += parts(value)
    return seen


class Looked(NamedTuple):
    """The fields that a kernel shared with its forks although they can change, and the classes of its state."""

    faults: set[str]
    classes: set[type]


@cache
def looked_at(make: Callable[[], tuple[ClusterKernel, Policy]]) -> Looked:
    """Fork a simulation at each of its decisions, and look at everything in it."""
    kernel, decide = make()
    talk, faults, classes = Conversation(kernel, 80.0), set[str](), set[type]()
    while talk.view is not None:
        original, fork = reached(kernel), reached(kernel.fork())
        common = [original[there] for there in original.keys() & fork.keys()]
        faults |= {f"copied, but shared: {type(value).__name__}" for value in common if not is_constant(value)}
        for state in [value for value in original.values() if isinstance(value, Forked)]:
            classes.add(type(state))
            same = {name for name, way in fields(state).items() if way == SAME}
            same -= {"jobs"} if state is kernel else set()  # they may be a list, and are not read again
            faults |= {f"{type(state).__name__}.{name}" for name in same if not is_constant(getattr(state, name))}
        talk.answer(decide(talk.view))
    return Looked(faults, classes)


@pytest.mark.parametrize("make", [on_the_network, sharing, elastic, on_demand, suspended])
def test_a_fork_shares_nothing_that_can_change(make: Callable[[], tuple[ClusterKernel, Policy]]) -> None:
    assert not looked_at(make).faults


def test_no_class_of_state_was_overlooked() -> None:
    classes = {cls for cls in Forked.__subclasses__() if cls.__module__.startswith("dagsim")}
    makers = (on_the_network, sharing, elastic, on_demand, suspended)
    assert classes <= {cls for make in makers for cls in looked_at(make).classes}
