"""Tools for your own tests: graphs with known answers, ``check_policy``, ``check_codec``,
``check_network``, ``check_system`` and ``check_env``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import numpy as np

from dagsim.errors import Stalled
from dagsim.model import Cluster, Edge, Job, Kind, Node, Task, TaskGraph, gpu_type
from dagsim.model.log import Schedule
from dagsim.model.streams import stream
from dagsim.systems.cluster import ClusterKernel, ClusterPolicy, Network, NodeFailures
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing.cases import Case, crowd, patience, random_case
from dagsim.testing.contract import check_env, check_system, misspelt
from dagsim.testing.knowledge_checks import BLIND_UNTIL_S, WatchedPolicy, blind_kernels, check_blind
from dagsim.testing.violations import as_recorded, violations

__all__ = [
    "chain",
    "check_codec",
    "check_env",
    "check_network",
    "check_policy",
    "check_system",
    "diamond",
    "fork_join",
    "heft_example",
    "random_case",
    "violations",
]

_CLUSTER = Cluster(
    (
        Node("fast", gpu_type("A100-40"), 4, 32, 256),
        Node("slow", gpu_type("T4"), 2, 16, 64),
        Node("slow-too", gpu_type("T4"), 2, 16, 64),
        Node("cpu", None, 0, 16, 64),
    )
)


_LARGEST = 1e4
"""Maximum magnitude of a codec's feature, because networks do not learn from columns of much larger
magnitude.
"""


def chain(*work: float) -> TaskGraph:
    """Return a chain of tasks. Its critical path is ``sum(work)``."""
    return _graph(work, [(index, index + 1) for index in range(len(work) - 1)])


def diamond(first: float = 1.0, left: float = 2.0, right: float = 5.0, last: float = 1.0) -> TaskGraph:
    """Return a graph in which one task is followed by two parallel tasks and then by a last task.
    Its critical path is ``first + max(left, right) + last``.
    """
    return _graph((first, left, right, last), [(0, 1), (0, 2), (1, 3), (2, 3)])


def fork_join(width: int, work: float = 1.0) -> TaskGraph:
    """Return a graph in which one task is followed by ``width`` parallel tasks and then by a last
    task. All tasks have the same work. On m GPUs, the graph takes ``(2 + ceil(width / m)) * work``.
    """
    inner = range(1, width + 1)
    edges = [(0, index) for index in inner] + [(index, width + 1) for index in inner]
    return _graph([work] * (width + 2), edges)


def heft_example() -> TaskGraph:
    """Return the ten tasks of a published example (figure 2 of Topcuoglu, Hariri and Wu, 2002),
    with their run times in seconds on the types P1, P2 and P3.

    The number of GB on each edge is the edge's communication cost in the paper. At 1 GB/s between
    nodes, a transfer therefore takes as many seconds as in the paper. With one processor per type,
    the makespan of HEFT is 80 and that of CPOP is 86.
    """
    seconds = (
        (14, 16, 9),
        (13, 19, 18),
        (11, 13, 19),
        (13, 8, 17),
        (12, 13, 10),
        (13, 16, 9),
        (7, 15, 11),
        (5, 11, 14),
        (18, 12, 20),
        (21, 7, 16),
    )
    costs = {
        (1, 2): 18,
        (1, 3): 12,
        (1, 4): 9,
        (1, 5): 11,
        (1, 6): 14,
        (2, 8): 19,
        (2, 9): 16,
        (3, 7): 23,
        (4, 8): 27,
        (4, 9): 23,
        (5, 9): 13,
        (6, 8): 15,
        (7, 10): 17,
        (8, 10): 11,
        (9, 10): 13,
    }
    tasks = tuple(
        Task(f"n{number}", 1.0, speeds={f"P{place}": 1.0 / s for place, s in enumerate(row, 1)})
        for number, row in enumerate(seconds, 1)
    )
    return TaskGraph(tasks, tuple(Edge(parent - 1, child - 1, cost * 1e9) for (parent, child), cost in costs.items()))


def check_policy(policy: ClusterPolicy | Callable[[], ClusterPolicy], workloads: int = 6) -> None:
    """Check that a policy handles small, difficult workloads, and raise an error otherwise. The
    workloads contain DAGs, gangs, shares of GPUs, CPU-only tasks, two GPU types, many jobs that
    arrive simultaneously, admission and wrong estimates. Nodes fail, are permanently removed, or
    all go down simultaneously.

    The policy must:

    - finish every job that can run on the remaining nodes, even if tasks that take a day compete
      with tasks that take seconds;
    - make the same decisions for the same seed, even if true durations change while the estimates
      stay equal (unless its class sets ``clairvoyant = True``);
    - change nothing except through decisions;
    - continue from a deep copy in a fork;
    - have no attribute whose name is probably a misspelt optional attribute (``Statements`` in
      ``systems.seam``).

    The log must obey every rule of ``violations``. ``policy`` is a function or class that creates
    the policy, or a policy that can be deep-copied before its first decision. To run a case from a
    message again, use its number: ``dagsim.testing.random_case(3).play(policy)``.

    Raises:
        AssertionError: A rule is broken. The message names the rule and the workload.
        IllegalDecision, Stalled: A decision is impossible, or the policy waits although nothing is
            pending.
    """
    make = (
        (lambda: copy.deepcopy(policy))
        if isinstance(policy, ClusterPolicy) and not isinstance(policy, type)
        else policy
    )
    for case, where in _cases(workloads):
        faults = case.faults(lambda: WatchedPolicy(make()))
        assert not faults, f"{faults[0]} {where}"
        _check_repetition(case, make, where)
    check_blind(make)
    typos = [f"{name} (meant: {meant}?)" for name, meant in misspelt(make()).items()]
    assert not typos, f"attributes that nothing reads: {', '.join(typos)}"


def _cases(workloads: int) -> Iterator[tuple[Case, str]]:
    """Yield crowds of jobs on one GPU and on two GPUs, then random workloads, and then difficult
    random cases.
    """
    yield crowd(1), "(a crowd on one GPU)"
    yield crowd(2), "(a crowd on two GPUs)"
    yield patience(), "(tasks of a second to a day)"
    for seed in range(workloads):
        failures = (NodeFailures(60.0, 10.0),) if seed % 2 else ()
        models = {"failures": failures}
        yield Case(_CLUSTER, list(_jobs(seed)), models, seed % 4 == 2, seed), f"(random workload {seed})"
        yield random_case(seed), f"(dagsim.testing.random_case({seed}))"


def _check_repetition(case: Case, make: Callable[[], ClusterPolicy], where: str) -> None:
    """Check that the same seed gives the same log. Also check that a fork that is made at 3 s, with
    a copy of the policy, runs to the end without a fault.
    """
    schedules = [case.kernel() for _ in range(2)]
    for kernel in schedules:
        case.drive(kernel, make())
    assert schedules[0].schedule.log == schedules[1].schedule.log, f"two runs with the same seed differ {where}"
    original, decider = case.kernel(), case.admitting(make())
    with suppress(Stalled):
        original.run(decider, until_s=3.0)
    if original.done:
        return
    fork, twin = original.fork(), copy.deepcopy(decider)
    finished = case.drive(fork, twin)
    faults = violations(fork.schedule, case.jobs, seconds=as_recorded, whole=finished)
    assert not faults, f"a deep copy of the policy does not go on in a fork: {faults[0]} {where}"


def check_codec(make: Callable[[], Any], workloads: int = 4) -> None:
    """Check that the codecs returned by ``make`` behave correctly if choices are random, and raise
    an error otherwise. The workloads are those of ``check_policy``.

    - Arrays have the columns that the codec names. Their values are float32 numbers that are finite
      and at most 1e4 in magnitude.
    - Encoding twice gives equal arrays.
    - Every choice leads to a decision that the kernel can carry out, and only the last choice means
      waiting.
    - All jobs finish, and the same choices give the same log.
    - True durations stay hidden: two workloads that differ only in their true durations give equal
      arrays until a task ends.

    Raises:
        AssertionError: A rule is broken. The message names the rule and the workload.
        IllegalDecision, Stalled: A choice decodes to an impossible decision, or to waiting although nothing is pending.
    """
    _check_blind_codec(make)
    for seed in range(workloads):
        jobs, where = list(_jobs(seed)), f"(random workload {seed})"
        first, second = (_play(make(), ClusterScenario(_CLUSTER, jobs).kernel(0), seed, where) for _ in range(2))
        faults = violations(first, jobs, seconds=as_recorded)
        assert not faults, f"{faults[0]} {where}"
        assert first.log == second.log, f"the same choices lead to other schedules {where}"


def check_network(network: Network, workloads: int = 4) -> None:
    """Check that a network model works on the workloads of ``check_policy``, in which edges carry
    gigabytes. Raise an error if it does not.

    All jobs must finish. A second simulation with the same network must give the same log. So must
    a fork that runs at the same time.

    Raises:
        AssertionError: A rule is broken. The message names the rule and the workload.
    """
    for seed in range(workloads):
        jobs, where = list(_jobs(seed)), f"(random workload {seed})"

        def simulation(jobs: list[Job] = jobs) -> ClusterKernel:
            return ClusterScenario(_CLUSTER, jobs, network=network).kernel(0)

        first = simulation().run(POLICIES.create("fifo-fit"))
        done = sum(row.kind == Kind.COMPLETED for row in first.log)
        assert done == len(jobs), f"only {done} of {len(jobs)} jobs finished {where}"
        assert simulation().run(POLICIES.create("fifo-fit")).log == first.log, f"a second simulation differs {where}"
        original, policy = simulation(), POLICIES.create("fifo-fit")
        original.run(policy, until_s=10.0)
        fork = original.fork()
        assert fork.run(policy).log == first.log, f"a fork differs from the simulation it was made of {where}"


def _check_blind_codec(make: Callable[[], Any]) -> None:
    """Check that the arrays are equal for the same random choices on equal jobs and estimates with
    different true durations.
    """
    where = "(the work of the blind check)"
    shown: list[list[np.ndarray]] = [[], []]
    for kernel, arrays in zip(blind_kernels(0), shown, strict=True):
        with suppress(Stalled):  # a random choice may be to wait although nothing is running
            _play(make(), kernel, 0, where, BLIND_UNTIL_S, arrays)
    equal = len(shown[0]) == len(shown[1]) and all(map(np.array_equal, *shown))
    assert equal, "the codec shows what tasks really take: other true durations behind equal estimates change an array"


def _play(
    codec: Any,
    simulation: ClusterKernel,
    seed: int,
    where: str,
    until_s: float = inf,
    shown: list[np.ndarray] | None = None,
) -> Schedule:
    """Run a simulation with uniformly random choices, and append the arrays to ``shown``."""
    rng = stream(seed, "check_codec")
    conversation = simulation.decisions(until_s)
    with suppress(StopIteration):
        view = next(conversation)
        while True:
            seen = codec.encode(view)
            if seen is None:
                view = conversation.send(())
                continue
            _check_observation(codec, seen, codec.encode(view), where)
            if shown is not None:
                shown += [np.array(part) for part in (seen.tokens, seen.context, seen.gpus)]
            decisions = [tuple(codec.decode(view, row)) for row in range(len(seen.tokens))]
            assert all(decisions[:-1]), f"a choice that is not the last stands for waiting {where}"
            view = conversation.send(decisions[rng.integers(len(decisions))])
    return simulation.schedule


def _check_observation(codec: Any, seen: Any, again: Any, where: str) -> None:
    names = {"tokens": codec.token_features, "context": codec.context_features, "gpus": codec.gpu_features}
    assert len(seen.tokens), f"nothing to choose from: encode should have returned None {where}"
    assert again is not None, f"encoding twice gives no choices the second time {where}"
    for name, features in names.items():
        array = getattr(seen, name)
        assert array.dtype == np.float32, f"{name} are {array.dtype}, not float32 {where}"
        assert array.shape[-1] == len(features), f"{name} have {array.shape[-1]} columns, not {len(features)} {where}"
        assert np.isfinite(array).all(), f"{name} are not finite {where}"
        largest = float(np.abs(array).max(initial=0.0))
        assert largest <= _LARGEST, f"{name} reach {largest:g}; scale them to at most {_LARGEST:g} {where}"
        assert np.array_equal(array, getattr(again, name)), f"encoding twice gives other {name} {where}"


def _graph(work: Sequence[float], edges: Iterable[tuple[int, int]]) -> TaskGraph:
    tasks = tuple([Task(f"t{index}", seconds) for index, seconds in enumerate(work)])
    return TaskGraph(tasks, tuple([Edge(parent, child) for parent, child in edges]))


def _jobs(seed: int) -> Iterator[Job]:
    rng = stream(seed, "check_policy")
    arrival_s = 0.0
    for number in range(12):
        arrival_s += float(rng.exponential(2.0))
        count = int(rng.integers(1, 6))
        edges = [Edge(parent, child, 2e9) for child in range(count) for parent in range(child) if rng.random() < 0.4]
        yield Job(f"j{number}", TaskGraph(tuple(_task(rng, at) for at in range(count)), tuple(edges)), arrival_s)


def _task(rng: np.random.Generator, at: int) -> Task:
    gpus = (0.0, 0.25, 0.5, 1.0, 1.0, 2.0)[rng.integers(6)]
    return Task(
        f"t{at}",
        float(rng.integers(1, 9)),
        instances=int(rng.integers(1, 5)),
        gang=bool(rng.random() < 0.3) and gpus < 2,
        gpus=gpus,
        cpus=float(rng.integers(1, 3)),
        memory_gb=float(rng.integers(0, 8)),
        speeds={"A100-40": 2.0, "T4": float(rng.choice((0.5, 1.0)))} if gpus else None,
    )
