"""What policies are told: starts, ends, and when GPUs are expected to be free."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import clusters, job_lists, models, simulation
from support.sources import PACKAGE

from dagsim.family import family_entries
from dagsim.model import Cluster, Edge, Job, Node, Preempt, Share, Start, Task, TaskGraph, gpu_type
from dagsim.systems.cluster import ClusterKernel, Preemption, UniformNetwork
from dagsim.systems.cluster.api import NEVER_S, ClusterView, ExpectedFree
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES

QUIET = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FORKED = ("srtf", "round-robin[quantum_s=2]", "easy", "eft-wait", "drf[by=job]", "qssf", "committed", "easy-events")
PREEMPTIVE = ("srtf", "round-robin[quantum_s=2]", "2d-las[quantum_s=2]", "easy", "eft-wait")


class Diary:
    """An index that writes down all it is told."""

    def __init__(self) -> None:
        self.ready = []
        self.under_way = {}
        self.over = Counter()

    def push(self, task):
        self.ready.append(task)

    def started(self, run, now):
        assert run.id not in self.under_way
        self.under_way[run.id] = run

    def ended(self, run, now):
        assert self.under_way.pop(run.id) is run
        self.over[run.task.job.number, run.task.index] += run.instances


class Watched:
    """A policy that checks at every decision of another that what it is told is what it sees."""

    def __init__(self, policy, ask_from_s=0.0):
        self.policy = policy
        self.ask_from_s = ask_from_s
        """Nobody asks for an index before."""

    def decide(self, view):
        for decision in self.policy.decide(view):
            self.check(view)
            yield decision
            self.check(view)
        self.check(view)

    def check(self, view: ClusterView) -> None:
        if view.now < self.ask_from_s:
            return
        diary = view.index(self, Diary)
        assert diary.under_way == view.running
        assert [task for task in diary.ready if task.waiting] == list(view.ready)
        for type_ in range(len(view.gpu_types)):
            self.check_expected(view, type_)

    def check_expected(self, view: ClusterView, type_: int) -> None:
        now, expected = view.now, view.expected_free
        running = [run for run in view.running.values() if run.type == type_]
        ends = sorted((run.estimated_end_s(now), run.id, run.gpus) for run in running)
        assert sorted((max(end, now), id_, gpus) for end, id_, gpus in expected.ends(type_)) == ends
        idle = view.machines.idle_gpus(type_)
        assert expected.times(type_) == [now] * idle + [
            end for end, _, gpus in ends for _ in range(max(round(gpus), 1) if gpus else 0)
        ]
        for gpus in (0.5, 1, 3):
            enough = [
                end for place, (end, _, _) in enumerate(ends) if idle + sum(e[2] for e in ends[: place + 1]) >= gpus
            ]
            wait_s = 0.0 if idle >= gpus else enough[0] - now if enough else NEVER_S
            assert expected.free_in_s(gpus, type_) == pytest.approx(wait_s)
            at = now if idle >= gpus else enough[0] if enough else None
            if at is not None:
                extra = idle + sum(held for end, _, held in ends if end <= at) - gpus
                assert expected.shadow(gpus, type_) == (at, pytest.approx(extra if at > now or extra else 0.0))
        for wait_s in (0.0, 2.0):
            free = idle + sum(gpus for end, _, gpus in ends if end <= now + wait_s)
            assert expected.free_within(wait_s, type_) == pytest.approx(free)


@pytest.mark.parametrize("spec", PREEMPTIVE)
@QUIET
@given(cluster=clusters(), jobs=job_lists(), models=models(), ask_from_s=st.sampled_from((0.0, 3.0)))
def test_what_is_told_is_what_runs(spec, cluster, jobs, models, ask_from_s):
    models = models | {"preemption": Preemption(restart_s=1.0)}  # who starts afresh in every round is never done
    kernel = simulation(cluster, jobs, models)
    kernel.run(Watched(POLICIES.create(spec), ask_from_s), until_s=500.0)


@pytest.mark.parametrize("spec", FORKED)
@QUIET
@given(cluster=clusters(), jobs=job_lists(), models=models(), at=st.integers(0, 8))
def test_a_copy_of_the_policy_goes_on_in_a_fork_as_the_original(spec, cluster, jobs, models, at):
    models = models | {"preemption": Preemption(restart_s=1.0)}
    kernel, policy = simulation(cluster, jobs, models), POLICIES.create(spec)
    conversation = kernel.decisions(until_s=500.0)
    fork = twin = None
    with suppress(StopIteration):
        view = next(conversation)
        while True:
            if fork is None and view.now >= at:
                fork, twin = kernel.fork(), copy.deepcopy(policy)
            view = conversation.send(policy.decide(view))
    if fork is not None:
        assert fork.run(Watched(twin), until_s=500.0).log.rows().tobytes() == kernel.schedule.log.rows().tobytes()


def test_a_start_is_told_in_the_line_after_it_and_an_end_before_what_follows():
    # 1 GPU: 1 takes 2 s and makes way after 1 s for 2, which takes 1 s
    events = []

    class Teller:
        def push(self, task):
            events.append(("ready", task.name))

        def started(self, run, now):
            events.append(("started", run.task.name, now, run.task.waiting))

        def ended(self, run, now):
            events.append(("ended", run.task.name, now))

    class Policy:
        def decide(self, view):
            view.index(self, Teller)
            if view.now == 1 and view.running and not events.count(("ready", "1/t")) > 1:
                yield Preempt(0)
                events.append("stopped")
            for task in list(view.ready)[:1]:
                if view.fits(task):
                    yield Start(task, (Share(0),))
                    events.append("done")

    jobs = [Job.single("1", Task("t", 2)), Job.single("2", Task("t", 1), 1)]
    ClusterKernel(Cluster.of({"V100": 1}), jobs).run(Policy())
    assert events == [
        ("ready", "1/t"),
        ("started", "1/t", 0.0, 0),
        "done",
        ("ready", "2/t"),
        ("ended", "1/t", 1.0),
        ("ready", "1/t"),
        "stopped",
        ("started", "2/t", 1.0, 0),
        "done",
        ("ended", "2/t", 2.0),
        ("started", "1/t", 2.0, 0),
        "done",
        ("ended", "1/t", 3.0),
    ]


def test_expected_ends_wait_for_inputs_that_are_late():
    # b reads 10 GB from the other node at 1 GB/s: fetched from 1 to 11, done at 16; late inputs count as there
    nodes = [Node(name, gpu_type("V100"), 1) for name in "nm"]
    graph = TaskGraph((Task("a", 1), Task("b", 5)), (Edge(0, 1, 10e9),))
    jobs = [Job("j", graph), *(Job.single(str(at), Task("t", 100, 2, True), at) for at in (2, 8, 12))]
    seen = {}

    class Policy:
        def decide(self, view):
            seen[view.now] = [end for end, _, _ in view.expected_free.ends(0)]
            for task in [task for task in view.ready if task.waiting and task.job.number == 0]:
                yield Start(task, (Share(task.index),))

    ClusterKernel(Cluster(tuple(nodes)), jobs, Models(network=UniformNetwork(1.0, 0.0))).run(Policy(), until_s=15)
    assert seen == {0: [], 1: [], 2: [7], 8: [13], 12: [16]}


def test_only_who_asks_pays():
    kernel = ClusterKernel(Cluster.of({"V100": 2}), [Job.single("1", Task("t", 1))])
    kernel.run(POLICIES.create("sjf"))
    assert not kernel.frontier.started
    assert not kernel.frontier.ended
    asking = ClusterKernel(Cluster.of({"V100": 2}), [Job.single("1", Task("t", 1))])
    view = next(asking.decisions())
    assert view.expected_free is view.expected_free
    assert isinstance(view.expected_free, ExpectedFree)
    assert len(asking.frontier.started) == 1


MAY_KNOW = {
    "families/episodes/search.py": {"dagsim.systems.cluster.scenario.GpuCluster"},
    # builds an example of an episode, with the default models
    "families/episodes/images.py": {
        "dagsim.systems.cluster.models.estimates.Estimates",
        "dagsim.systems.cluster.models.runtime.Recorded",
    },
    # runs whole episodes in the compiled engine, so it is an engine as well
    "families/episodes/side_by_side.py": {"dagsim.systems.cluster.scenario.refused_engine"},
}
"""Names outside the API that a module behind a policy may import, by module."""


def policy_modules() -> dict[str, Path]:
    """The modules of the core's policies, those that families name as the modules of theirs, and all modules
    of the same family that these import, directly or through others.
    """
    core = sorted((PACKAGE / "systems/cluster/policies").rglob("*.py"))
    modules = {f"dagsim.systems.cluster.policies.{path.stem}": path for path in core}
    ahead = [f"{home}{entry.target}".partition(":")[0] for home, entry in family_entries("policies")]
    while ahead:
        module = ahead.pop()
        if module not in modules and (path := path_of(module)) is not None:
            modules[module] = path
            family = ".".join(module.split(".")[:3]) + "."
            ahead += [name for name, _ in imported(path) if name.startswith(family)]
            ahead += [name.rpartition(".")[0] for name, _ in imported(path) if name.startswith(family)]
    return modules


def path_of(module: str) -> Path | None:
    """The file of a module, or None if the name is something in a module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return None if spec is None else Path(str(spec.origin))


def imported(path: Path) -> list[tuple[str, int]]:
    """The names that a module imports, with their lines."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [(alias.name, node.lineno) for alias in node.names]
    return names


def test_policies_import_nothing_of_the_simulation_but_its_api():
    modules = policy_modules()
    allowed = ("dagsim.systems.cluster.api.", "dagsim.systems.cluster.policies.")
    strays = []
    for path in modules.values():
        file = path.relative_to(PACKAGE).as_posix()
        for name, line in imported(path):
            outside = name.startswith("dagsim.systems") and not f"{name}.".startswith(allowed)
            if outside and name not in MAY_KNOW.get(file, ()):
                strays.append(f"{file}:{line} imports {name}")
    assert len(modules) > 50
    assert not strays, "\n".join(strays)


@pytest.mark.family("slurm")
def test_the_modules_behind_a_policy_are_checked_as_well():
    assert "dagsim.families.slurm.scheduler.slurm_rules" in policy_modules()
