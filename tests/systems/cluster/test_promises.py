"""What the kernel promises (DESIGN section 3), on random DAGs, clusters, models and policies."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.cases import clusters, job_lists, models, simulation
from support.recorded_policy import RecordedPolicy

from dagsim.metrics import littles_law
from dagsim.model import Cluster, Decision, Job, Preempt, Start, Task, TaskGraph
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.orders import by_arrival
from dagsim.systems.cluster.view import ClusterPolicy, ClusterView
from dagsim.testing.violations import violations


def _needs_nothing(name: str) -> bool:
    """Whether the policy can be made without parameters."""
    parameters = inspect.signature(POLICIES.get(name)).parameters.values()  # type: ignore[arg-type]
    return all(
        parameter.default is not parameter.empty or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters
    )


NAMES = ("restless", *(name for name in POLICIES.names() if _needs_nothing(name)))
FORKED = tuple(name for name in NAMES if name != "random")
"""``random`` draws from an index in the order of its history, which a fork makes anew."""
OVERTAKEN = [
    Job("wide", TaskGraph((Task("share", 0.5, gpus=0.25), Task("two of two", 1.0, instances=2, gpus=2)))),
    *(Job.single(name, Task("t", 0.0, gpus=0)) for name in ("one", "two")),
    Job.single("late", Task("t", 0.0, gpus=0.25)),
]
"""What HEFT plans next on its GPUs changes while it is asked: a fork found it in another order once."""
relaxed = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


class Restless:
    """Oldest first among those that fit, but in each instant until 20 s the youngest run is stopped once."""

    def __init__(self) -> None:
        self.stopped_s = -1.0

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        if self.stopped_s < view.now < 20.0:
            self.stopped_s = view.now
            if view.running:
                yield Preempt(max(view.running))
        task = view.queue(by_arrival).first_fit()
        placement = None if task is None else view.fit(task)
        if task is not None and placement is not None:
            yield Start(task, placement)


def make(name: str) -> ClusterPolicy:
    return Restless() if name == "restless" else POLICIES.create(name)


@relaxed
@given(clusters(), job_lists(), models(), st.sampled_from(NAMES))
def test_every_promise_holds_on_random_schedules(
    cluster: Cluster, jobs: list[Job], models: dict[str, object], name: str
) -> None:
    schedule = simulation(cluster, jobs, models).run(make(name))
    assert violations(schedule, jobs) == []
    integral, total = littles_law(schedule)
    assert abs(integral - total) <= 1e-9 * max(1.0, total)


@relaxed
@given(clusters(), job_lists(), models(), st.sampled_from(NAMES))
def test_same_seed_gives_the_same_bytes(
    cluster: Cluster, jobs: list[Job], models: dict[str, object], name: str
) -> None:
    first, second = (simulation(cluster, jobs, models).run(make(name)) for _ in range(2))
    assert first.log == second.log


@relaxed
@given(clusters(), job_lists(), models(), st.sampled_from(NAMES))
def test_a_recorded_log_replays_to_itself(
    cluster: Cluster, jobs: list[Job], models: dict[str, object], name: str
) -> None:
    models = models | {"failures": ()}  # a log does not say which of the failed instances are started again
    first = simulation(cluster, jobs, models).run(make(name))
    again = simulation(cluster, jobs, models).run(RecordedPolicy(first.log))
    assert again.log == first.log


class ForkingAt:
    """Runs a policy and forks once, at the given conversation, together with a copy of the policy."""

    def __init__(self, name: str, at: int) -> None:
        self.policy, self.at, self.asked = make(name), at, 0
        self.kernel: ClusterKernel
        """The kernel that asks, set before it runs."""
        self.fork: ClusterKernel | None = None
        self.copied: ClusterPolicy | None = None

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        self.asked += 1
        if self.asked == self.at:
            self.fork, self.copied = self.kernel.fork(), copy.deepcopy(self.policy)
        return self.policy.decide(view)


@relaxed
@given(clusters(), job_lists(), models(), st.sampled_from(FORKED), st.integers(1, 12))
@example(Cluster.of({"A100-40": 4}), OVERTAKEN, {}, "heft", 2)
def test_a_fork_goes_on_to_the_same_log(
    cluster: Cluster, jobs: list[Job], models: dict[str, object], name: str, at: int
) -> None:
    forking = ForkingAt(name, at)
    forking.kernel = simulation(cluster, jobs, models)
    original = forking.kernel.run(forking)
    if forking.fork is not None and forking.copied is not None:
        assert forking.fork.run(forking.copied).log == original.log
