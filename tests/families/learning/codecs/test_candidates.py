"""The candidates codec shows what its features say, computed here the plain way: from the view, anew, in arrays."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

import numpy as np
import pytest

from dagsim.errors import Stalled
from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.codecs.codec import CandidatesConfig, Observation
from dagsim.families.learning.episode import Episode
from dagsim.model import Cluster, Decision, Job, Kill, Node, Task, TaskGraph, gpu_type
from dagsim.systems.cluster.api import ClusterView, TaskState
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing.cases import random_case

CONFIGS = (
    CandidatesConfig(),
    CandidatesConfig("cdf", "mixed", 4),
    CandidatesConfig("per_gpu"),
    CandidatesConfig("off", "oldest", 3),
)


def width(task: TaskState) -> float:
    return task.demand.demand.gpus * (task.demand.gang or 1) or 1.0


def capacity(view: ClusterView) -> np.ndarray:
    gpus = [0.0] * len(view.gpu_types)
    for machine in view.machines.list:
        gpus[machine.type] += machine.gpus
    return np.maximum(gpus, 1.0)


def heads(view: ClusterView, groups: dict[object, list[TaskState]]) -> Iterable[TaskState]:
    """Of each group the shortest task and the one with the shortest rest of its job, in the order of first tasks."""
    for group in groups.values():
        if waiting := [task for task in group if task.waiting]:
            first = min(waiting, key=lambda task: (task.best_s, task.order, task.piece))
            last = min(waiting, key=lambda task: (task.rank_s, task.order, task.piece))
            yield from (first,) if first is last else (first, last)


def window(view: ClusterView, config: CandidatesConfig) -> Iterable[TaskState]:
    oldest = config.window if config.select == "oldest" else config.window // 2
    shortest = sorted(view.ready, key=lambda task: (task.best_s, task.order, task.piece))
    first = list(islice(view.ready, oldest))
    return dict.fromkeys([*first, *shortest[: config.window - len(first)]] if config.select == "mixed" else first)


class Plain:
    """All tasks that became ready, by group; those that the codec counts as waiting are ``counted``."""

    def __init__(self) -> None:
        self.groups: dict[object, list[TaskState]] = {}

    def push(self, task: TaskState) -> None:
        best_s = task.best_s or 1e-9
        profile = tuple(round(seconds / best_s, 6) for seconds in task.seconds)
        self.groups.setdefault((task.demand, profile), []).append(task)

    def observation(self, view: ClusterView, config: CandidatesConfig, counted: list[TaskState]) -> Observation:
        considered = heads(view, self.groups) if config.select == "heads" else window(view, config)
        fits = view.machines.fits_on
        rows = [(task, type_) for task in considered for type_ in task.demand.types if fits(task.demand, type_)]
        gpus = gpu_features(view, config, counted)
        tokens = [token(view, config, counted, gpus, *row) for row in rows]
        if view.pending:
            tokens.append([1.0] + [0.0] * (len(Candidates.token_features) - 1))
        return Observation(np.array(tokens, np.float32), context(view, counted, gpus), gpus)


def gpu_features(view: ClusterView, config: CandidatesConfig, counted: list[TaskState]) -> np.ndarray:
    gpus, expected = capacity(view), view.expected_free
    rows = []
    for type_, units in enumerate(gpus):
        area = sum((task.best_s or 1e-9) * width(task) for task in counted if task.seconds.index(task.best_s) == type_)
        slower = [slowdown(task, type_) for task in counted]
        ahead: list[float] = [0.0] * 4
        if config.look_ahead == "sorted":
            ahead = list(np.log1p(np.array([expected.free_in_s(probe, type_) for probe in (1, 2, 4, 8)]) / 60) / 5)
        elif config.look_ahead == "per_gpu":
            ahead = list(np.log1p(np.array(expected.oldest_s(type_, 4)) / 60) / 5)
        elif config.look_ahead == "cdf":
            ahead = [expected.free_within(wait_s, type_) / units for wait_s in (60, 300, 900, 3600)]
        idle = view.machines.idle_gpus(type_) / units
        rows.append([idle, units / gpus.sum(), np.log1p(area / units / 600), np.mean(slower), *ahead])
    return np.array(rows, np.float32)


def slowdown(task: TaskState, type_: int) -> float:
    seconds = task.seconds[type_]
    return 0.0 if np.isinf(seconds) else float(np.log(max(seconds, 1e-9) / (task.best_s or 1e-9)))


def token(
    view: ClusterView, config: CandidatesConfig, counted: list[TaskState], gpus: np.ndarray, task: TaskState, type_: int
) -> list[float]:
    seconds, best_s, wide, job = np.array(task.seconds), task.best_s or 1e-9, width(task), task.job
    best, slower = task.seconds.index(task.best_s), slowdown(task, type_)
    children = len(job.job.graph.children[task.index])
    static = [
        (np.log(best_s / 600) + slower) / 3,
        np.log(best_s / 600) / 3,
        slower,
        wide / 8,
        (np.log(best_s * wide / 600) + slower) / 3,
        np.log(max(task.rank_s, 1e-9) / 600) / 3,
        children / 2,
        len(job.tasks) / 8,
        float(type_ == best),
    ]
    finish = seconds + [view.expected_free.eta_s(task.demand, index) for index in range(len(seconds))]
    here_s, elsewhere = max(seconds[type_], 1e-9), np.delete(finish, type_).min(initial=np.inf)
    left_s = sum(sibling.best_s for sibling in job.tasks if sibling.unfinished)
    with np.errstate(divide="ignore"):
        ahead = [
            np.log1p((finish[best] - best_s) / 60) / 5,
            np.clip(np.log(max(finish[best], 1e-9) / here_s), -3, 3),
            np.clip(np.log(max(elsewhere, 1e-9) / here_s), -3, 3),
        ]
    moving = [
        np.log1p((view.now - task.ready_s) / 60) / 5,
        np.log1p((view.now - job.job.arrival_s) / 60) / 5,
        *(ahead if config.look_ahead != "off" else [0.0] * 3),
        float(gpus[type_, 0]) - wide / capacity(view)[type_],
        np.mean([(other.best_s or 1e-9) < best_s for other in counted]),
        slower - float(gpus[type_, 3]),
        np.log1p(left_s / 600) / 3,
        job.tasks_left / 8,
    ]
    return [0.0, *static, *moving, *gpus[type_]]


def context(view: ClusterView, counted: list[TaskState], gpus: np.ndarray) -> np.ndarray:
    total = capacity(view).sum()
    areas = [(task.best_s or 1e-9) * width(task) for task in counted]
    of = [int(np.searchsorted((1, 2, 4), width(task))) for task in counted]
    present = [len(counted), len(view.running), len(view.jobs), sum(areas) / total / 600]
    classes: list[float] = []
    for width_class in range(4):
        best_s = [task.best_s or 1e-9 for task, class_ in zip(counted, of, strict=True) if class_ == width_class]
        area = sum(area for area, class_ in zip(areas, of, strict=True) if class_ == width_class)
        shortest = np.log1p(min(best_s) / 60) / 5 if best_s else -1.0
        classes += [np.log1p(len(best_s)), shortest, np.log1p(area / total / 600)]
    return np.array([*np.log1p(present), *classes, *gpus.mean(axis=0)], np.float32)


class Checked:
    """Chooses at random among the candidates; every observation must be the plain one."""

    def __init__(self, config: CandidatesConfig, seed: int) -> None:
        self.codec = Candidates(config)
        self.rng = np.random.default_rng(seed)
        self.seen = 0

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        plain = view.index(self, Plain)
        seen = self.codec.encode(view)
        if seen is None or self.seen >= 100:
            return ()
        self.seen += 1
        assert self.codec._pool is not None
        counted = [task for task in view.ready if task.waiting]
        assert set(self.codec._pool.tasks) == set(counted)
        expected = plain.observation(view, self.codec.config, counted)
        for name, shown, wanted in zip(Observation._fields, seen, expected, strict=True):
            np.testing.assert_allclose(shown, wanted, rtol=3e-7, atol=1e-9, err_msg=f"{name} at {view.now} s")
        return self.codec.decode(view, int(self.rng.integers(len(seen.tokens))))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_observation_is_the_plain_one(config: CandidatesConfig) -> None:
    seen = 0
    for seed in range(12):
        case = random_case(seed)
        policy = Checked(config, seed)
        with suppress(Stalled):  # who chooses at random may wait for nothing
            case.kernel().run(case.admitting(policy))
        seen += policy.seen
    assert seen > 150


def test_a_run_that_has_ended_before_the_next_choice_is_counted_no_more() -> None:
    # The first job starts and nothing else is ready; it is over when the two others come, and there is a choice again.
    jobs = [Job("first", TaskGraph((Task("t", 5.0),)), 0.0)]
    jobs += [Job(f"later{number}", TaskGraph((Task("t", 5.0),)), 9.0) for number in range(2)]
    episode = Episode(ClusterScenario(Cluster((Node("a", gpu_type("V100"), 2),)), jobs).kernel(0), Candidates())
    episode.step(0)
    assert episode.now == 9.0
    features = dict(zip(Candidates.context_features, episode.observation.context.tolist(), strict=True))
    assert np.expm1([features["ready"], features["count_0"]]) == pytest.approx([2.0, 2.0])


class Killing(Checked):
    """As ``Checked``, and kills the first job at its first question from 3 s on."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        if view.now >= 3.0 and 0 in view.jobs:
            return (Kill(0),)
        return super().decide(view)


def test_tasks_of_a_job_that_was_killed_are_counted_no_more() -> None:
    # Of the first job one instance runs and nine wait; two others come at 3 s, when it is killed.
    jobs = [Job.single("first", Task("t", 50.0, instances=10), 0.0)]
    jobs += [Job.single(f"later{number}", Task("t", 5.0), 3.0) for number in range(2)]
    policy = Killing(CandidatesConfig(), 0)
    ClusterScenario(Cluster((Node("a", gpu_type("V100"), 1),)), jobs).kernel(0).run(policy)
    assert policy.seen >= 2


def test_what_has_started_leaves_no_residue_in_sums() -> None:
    """2.3 + 0.1 - 2.3 - 0.1 is not 0 in floating point, and a logarithm would show it."""
    tasks = [Task("t", work, gpus=2.0) for work in (2.3, 0.1)]
    jobs = [Job(f"j{number}", TaskGraph((task,)), 0.0) for number, task in enumerate(tasks)]
    later = Job("later", TaskGraph((Task("t", 5.0),)), 1.0)
    episode = Episode(
        ClusterScenario(Cluster((Node("a", gpu_type("V100"), 5),)), [*jobs, later]).kernel(0), Candidates()
    )
    while episode.now < 1.0:
        episode.step(0)
    features = dict(zip(Candidates.context_features, episode.observation.context.tolist(), strict=True))
    assert features["area_1"] == features["count_1"] == 0.0
    assert features["shortest_1"] == -1.0
    assert features["area_0"] == features["work"] > 0.0


def test_observations_can_be_written_to_and_share_nothing() -> None:
    jobs = [Job(f"j{number}", TaskGraph((Task("t", 2.0),)), 0.0) for number in range(3)]
    episode = Episode(ClusterScenario(Cluster((Node("a", gpu_type("V100"), 2),)), jobs).kernel(0), Candidates())
    first = episode.observation
    kept = first.tokens.copy()
    episode.step(0)
    episode.observation.tokens[:] = 7.0
    assert np.array_equal(first.tokens, kept)
