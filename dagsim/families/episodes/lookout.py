"""A copy of a simulation's current state, in which episodes try choices. Future
arrivals are drawn from past arrivals.

The copy is built from what a policy may see: the jobs in the system with their estimates, runs with
their expected ends, and copies of earlier jobs, which represent future jobs. It contains no true
durations and no true future arrivals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nextafter
from typing import Any, NamedTuple

import numpy as np

from dagsim.families.compiled.choice import too_much
from dagsim.families.compiled.memory import PAST, TASK, Classes, EmptyNodes, Jobs, Work, records
from dagsim.families.compiled.reading import EngineScenario, demand_classes, empty_nodes
from dagsim.families.compiled.rules import RECALL
from dagsim.families.episodes.episode_calls import (
    TrialColumns,
    advance_episodes,
    compile_episodes,
    play_out_episodes,
    propose_in,
    recall_in,
)
from dagsim.families.episodes.episode_state import EpisodeCodec, EpisodeReward, scratch, too_large
from dagsim.families.episodes.images import Image, aligned, put_at
from dagsim.families.episodes.playout import NO_NET, ScorerNet
from dagsim.systems.cluster.api import ClusterState, ClusterView, JobState

_LATE = 0.05
"""A run that takes longer than estimated is expected to take this fraction of the estimate in
addition."""


class ArrivedJob(NamedTuple):
    """The facts about a job that a scheduler can see when the job arrives."""

    arrival_s: float
    kind: np.ndarray  # (n,) int64: demand classes
    instances: np.ndarray  # (n,) int64
    seconds: np.ndarray  # (n, types) float64: estimates
    children: np.ndarray  # (n + 1,) int64: index in ``child`` of each task's first child
    child: np.ndarray  # (edges,) int64
    order: np.ndarray  # (n,) int64: parents first
    ordered: bool
    """True if the tasks are already in that order."""

    @classmethod
    def of(cls, job: JobState) -> ArrivedJob:
        """Convert a job to columns."""
        graph, tasks = job.job.graph, job.tasks
        sizes = [len(graph.children[task.index]) for task in tasks]
        return cls(
            job.job.arrival_s,
            np.array([task.demand.number for task in tasks]),
            np.array([task.task.instances for task in tasks]),
            np.array([task.seconds for task in tasks]),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.array([child for task in tasks for child in graph.children[task.index]], np.int64),
            np.array(graph.order),
            all(task == place for place, task in enumerate(graph.order)),
        )


class Follower(NamedTuple):
    """The source of the decisions in an episode: the network for the first ``depth`` choices, and a
    heuristic (``proposals``) for all later ones.
    """

    theta: float
    order: int
    depth: int = 0


class FirstChoice(NamedTuple):
    """A first choice (a row of the choices, ``WAIT`` or ``AS_PROPOSED``), and the source of the later
    choices.
    """

    first: int
    player: Follower


@dataclass(frozen=True, slots=True)
class _Look:
    """The state of the simulation when it was last copied."""

    image: Image
    jobs: list[JobState]
    first: list[int]
    """Index of each job's first task in the image, and the end."""
    arrivals: Sequence[np.ndarray]
    """The arrival times of the samples, for each possible future."""


class Lookout:
    """The current state of a simulation, and several possible futures. All choices are tried in the
    same futures.
    """

    def __init__(self, codec: EpisodeCodec, net: ScorerNet | None = None) -> None:
        compile_episodes(trials=True)
        self.plays = 0
        """Number of choices made in all trials so far."""
        self._codec, self._net = codec, NO_NET if net is None else net
        self._log = scratch(1)
        self._classes: Classes | None = None
        self._nodes: EmptyNodes | None = None
        self._look: _Look | None = None
        self._of: Image | None = None
        """The image for which the tables are built."""
        self._slots = 0
        self._room = aligned(0)
        self._arenas = self._room.reshape(0, 0)
        self._tables = self._addresses = np.zeros(0, np.int64)
        self._now_s = np.zeros(1)

    def look(
        self,
        view: ClusterView,
        columns: Mapping[int, ArrivedJob],
        samples: Sequence[ArrivedJob],
        arrivals: Sequence[np.ndarray],
    ) -> bool:
        """Copy the current state. ``columns`` contains the jobs in the system by number.
        ``arrivals`` contains one array for each possible future, (samples,) float64: the times at
        which a copy of each sample arrives, in ascending order, and ``inf`` if it does not arrive.

        Return False if nothing can be started, or if the engine does not support the state. It does
        not support a state that is too large, or tasks that interfere with each other on shared
        GPUs.
        """
        jobs = list(view.jobs.values())
        if view.sharing is not None or not jobs:
            return False
        scene = self._scene(view, jobs, [columns[job.number] for job in jobs], samples)
        if too_much(scene, "") or too_large(scene):
            return False
        image = Image(view.cluster, scene, self._codec, EpisodeReward(), self._log, recorded=False)
        first = scene.work.jobs.first[: len(jobs) + 1].tolist()
        self._look = _Look(image, jobs, first, arrivals)
        image.part(image.bytes, "state.clock")["phase"] = RECALL
        image.part(image.bytes, "state.jobs")["left"][: len(jobs)] = [job.tasks_left for job in jobs]
        image.part(image.bytes, "state.todo")["missing"][: first[-1]] = [
            task.missing if task.unfinished else 0 for job in jobs for task in job.tasks
        ]
        self._make_room(image, 1 + len(arrivals))
        self._arenas[0] = image.bytes
        recall_in(self._addresses, np.zeros(1, np.int64))
        can_start = self._advance(-1) and self._now_s[0] == view.now
        if can_start:
            ready_s = self._present("ready_s")
            for job, begin in zip(jobs, first[:-1], strict=True):
                ready_s[begin : begin + len(job.tasks)] = [task.ready_s for task in job.tasks]
        return can_start

    def proposals(self, players: Sequence[Follower]) -> tuple[list[int], int]:
        """Return the first choice of each heuristic, and the network's first choice (-1 without a
        network).
        """
        choices = np.zeros((1, len(players) + 1), np.int64)
        theta = np.array([player.theta for player in players], float)
        order = np.array([player.order for player in players], np.int64)
        propose_in(self._addresses, np.zeros(1, np.int64), theta, order, self._net, choices)
        *first, best = choices[0].tolist()
        return first, best

    def start_of(self, choice: int) -> tuple[JobState, int, int]:
        """Return the job, the index of the task, and the type that belong to a choice."""
        look = self._look
        assert look is not None
        task, type_ = self._present("choice")[choice].tolist()
        place = int(np.searchsorted(look.first, task, "right")) - 1
        return look.jobs[place], task - look.first[place], type_

    def costs(self, trials: Sequence[FirstChoice], futures: int) -> np.ndarray:
        """Return the sum of the completion times of all jobs, for each trial in each of the first
        ``futures`` futures, (trials, futures) float64.
        """
        look = self._look
        assert look is not None
        self._make_room(look.image, 1 + futures + len(trials) * futures)
        future = self._arenas[1 : 1 + futures]
        future[:] = self._arenas[0]
        jobs = look.image.part(future, "state.jobs")[:, len(look.jobs) : -1]
        at_s = np.array(look.arrivals[:futures])
        jobs["rejected"] = np.isinf(at_s)
        jobs["arrival_s"] = np.maximum.accumulate(np.where(np.isinf(at_s), self._now_s[0], at_s), axis=1)
        count, players = len(trials) * futures, [trial.player for trial in trials]
        played = TrialColumns(
            source=np.tile(np.arange(1, 1 + futures), len(trials)),
            which=np.arange(1 + futures, 1 + futures + count),
            first=np.repeat([trial.first for trial in trials], futures),
            depth=np.repeat([player.depth for player in players], futures),
            theta=np.repeat([float(player.theta) for player in players], futures),
            order=np.repeat([player.order for player in players], futures),
            end_s=np.zeros(count),
        )
        self.plays += play_out_episodes(self._addresses, self._arenas, played, self._net)
        return played.end_s.reshape(len(trials), futures)

    def _present(self, name: str) -> np.ndarray:
        assert self._look is not None
        return self._look.image.part(self._arenas[0], name)

    def _advance(self, choice: int) -> bool:
        score, over = np.zeros(1), np.zeros(1, bool)
        advance_episodes(np.zeros(1, np.int64), np.full(1, choice), self._addresses, score, over, self._now_s)
        return not over[0] and bool(self._present("tally")["choices"])

    def _make_room(self, image: Image, slots: int) -> None:
        """Allocate arenas and tables for ``slots`` episodes that begin as in ``image``."""
        size = len(image.bytes)
        before = self._arenas[0].copy() if self._slots and self._arenas.shape[1] == size else None
        if self._slots >= slots and before is not None and self._of is image:
            return
        if len(self._room) < slots * size:
            self._room = aligned(2 * slots * size)
        slots = max(slots, len(self._room) // size if size else slots)
        self._arenas = self._room[: slots * size].reshape(slots, size)
        if before is not None and self._of is image:
            self._arenas[0] = before
        self._slots, self._of = slots, image
        self._tables, self._addresses = put_at(image, self._arenas, self._log)
        self._now_s = np.concatenate([self._now_s[:1], np.zeros(slots - 1)])

    def _scene(
        self, view: ClusterView, active: Sequence[JobState], known: Sequence[ArrivedJob], samples: Sequence[ArrivedJob]
    ) -> EngineScenario:
        """Convert the current state and the samples to columns. ``known`` are the ``active`` jobs."""
        before, jobs = nextafter(view.now, -inf), [*known, *samples]
        first = np.concatenate([[0], np.cumsum([len(job.kind) for job in jobs])])
        instances = [task.unfinished for job in active for task in job.tasks]
        rows, child, order = _graph_columns(jobs, first, [instances, *[job.instances for job in samples]])
        seconds = np.concatenate([job.seconds for job in jobs])
        first_of = {job.number: at for job, at in zip(active, first[: len(active)].tolist(), strict=True)}
        past = np.array(_past_rows(view, first_of, seconds), PAST).view(np.recarray)
        arrival_s = np.full(len(jobs), inf)
        arrival_s[: len(known)] = [min(job.arrival_s, before) for job in known]
        zeros = np.zeros(len(jobs))
        columns = Jobs(arrival_s, zeros, first, zeros, zeros + inf, zeros + 1.0)
        work = Work(columns, rows, child, seconds, seconds, order, past, view.now)
        return EngineScenario(work, self._demand_classes(view.machines), self._nodes_up(view.machines))

    def _demand_classes(self, machines: ClusterState) -> Classes:
        if self._classes is None or len(self._classes.table) != len(machines.classes):
            self._classes = demand_classes(machines)
        return self._classes

    def _nodes_up(self, machines: ClusterState) -> EmptyNodes:
        """Return the nodes. Those that are down have no resources."""
        if self._nodes is None:
            self._nodes = empty_nodes(machines)
        down = [machine.index for machine in machines.list if not machine.up]
        if not down:
            return self._nodes
        nodes = self._nodes._replace(table=self._nodes.table.copy())
        for name in ("idle", "free", "cpus", "memory"):
            nodes.table[name][down] = 0
        return nodes


class _GraphColumns(NamedTuple):
    """The tasks of all jobs with their graphs, as in ``Work``."""

    rows: np.recarray
    child: np.ndarray
    order: np.ndarray


def _graph_columns(jobs: Sequence[ArrivedJob], first: np.ndarray, instances: Sequence[Any]) -> _GraphColumns:
    """Join the columns of jobs whose tasks begin at ``first``."""
    edges = np.cumsum([0, *[len(job.child) for job in jobs]])
    rows = records(
        TASK,
        int(first[-1]) + 1,
        children=np.concatenate(
            [*[job.children[:-1] + at for job, at in zip(jobs, edges[:-1], strict=True)], [edges[-1]]]
        ),
        job=np.repeat(np.arange(len(jobs)), np.diff(first)),
        kind=np.concatenate([job.kind for job in jobs]),
        instances=np.concatenate(instances),
    )
    begins = list(zip(jobs, first[:-1], strict=True))
    child = np.concatenate([job.child + at for job, at in begins]).astype(np.int32)
    if all(job.ordered for job in jobs):
        return _GraphColumns(rows, child, np.zeros(0, np.int32))
    return _GraphColumns(rows, child, np.concatenate([job.order + at for job, at in begins]).astype(np.int32))


def _past_rows(view: ClusterView, first_of: Mapping[int, int], seconds: np.ndarray) -> list[tuple[Any, ...]]:
    """Return the runs in flight as rows of ``PAST``, sorted by start. ``first_of`` is the index of
    the first task of each job.
    """
    now, before = view.now, nextafter(view.now, -inf)
    past: list[tuple[Any, ...]] = []
    for run in view.running.values():
        task = first_of[run.task.job.number] + run.task.index
        takes_s = float(seconds[task, run.type])
        ends_s = max(run.estimated_end_s(now), now + _LATE * takes_s)
        since_s = min(ends_s - takes_s, before)
        holds = []
        for node, count, gpus, shared in run.held:
            parts = [(shared.count(gpu), 1 << gpu) for gpu in dict.fromkeys(shared)] or [(count, gpus)]
            holds += [(since_s, task, node.index, *part) for part in parts]
        past += [(*hold, number == len(holds)) for number, hold in enumerate(holds, 1)]
    return sorted(past, key=lambda row: row[0])
