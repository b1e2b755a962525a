"""A copy of a simulation's current state, in which episodes try choices. Future
arrivals are drawn from past arrivals.

The copy is built from what a policy may see: the jobs in the system with their estimates, runs with
their expected ends, and copies of earlier jobs, which represent future jobs. It contains no true
durations and no true future arrivals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nextafter
from typing import NamedTuple

import numpy as np

from dagsim.families.compiled.choice import too_much
from dagsim.families.compiled.memory import PAST, TASK, Classes, EmptyNodes, Jobs, Work, records
from dagsim.families.compiled.reading import EngineScenario, demand_classes, empty_nodes
from dagsim.families.compiled.rules import RECALL
from dagsim.families.episodes.episode_state import EpisodeCodec, EpisodeReward, scratch, too_large
from dagsim.families.episodes.playout import NO_NET, ScorerNet
from dagsim.families.episodes.side_by_side import (
    Image,
    advance_episodes,
    aligned,
    compile_episodes,
    play_out_episodes,
    propose_in,
    put_at,
    recall_in,
)
from dagsim.systems.cluster.api import ClusterView, JobState

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
        self._jobs: list[JobState] = []
        self._first: list[int] = []
        self._arrivals: Sequence[np.ndarray] = ()
        self._image: Image | None = None
        self._of: Image | None = None
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
        self._jobs, self._arrivals = list(view.jobs.values()), arrivals
        if view.sharing is not None or not self._jobs:
            return False
        scene = self._scene(view, [columns[job.number] for job in self._jobs], samples)
        if too_much(scene, "") or too_large(scene):
            return False
        self._image = Image(view.cluster, scene, self._codec, EpisodeReward(), self._log, recorded=False)
        content = self._image.bytes
        self._image.part(content, "state.clock")["phase"] = RECALL
        self._image.part(content, "state.jobs")["left"][: len(self._jobs)] = [job.tasks_left for job in self._jobs]
        self._image.part(content, "state.todo")["missing"][: self._first[-1]] = [
            task.missing if task.unfinished else 0 for job in self._jobs for task in job.tasks
        ]
        self._make_room(1 + len(arrivals))
        self._arenas[0] = self._image.bytes
        recall_in(self._addresses, np.zeros(1, np.int64))
        can_start = self._advance(-1) and self._now_s[0] == view.now
        if can_start:
            ready_s = self._image.part(self._arenas[0], "ready_s")
            for job, first in zip(self._jobs, self._first, strict=False):
                ready_s[first : first + len(job.tasks)] = [task.ready_s for task in job.tasks]
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
        task, type_ = self._present("choice")[choice].tolist()
        place = int(np.searchsorted(self._first, task, "right")) - 1
        return self._jobs[place], task - self._first[place], type_

    def costs(self, trials: Sequence[FirstChoice], futures: int) -> np.ndarray:
        """Return the sum of the completion times of all jobs, for each trial in each of the first
        ``futures`` futures, (trials, futures) float64.
        """
        assert self._image is not None
        self._make_room(1 + futures + len(trials) * futures)
        future = self._arenas[1 : 1 + futures]
        future[:] = self._arenas[0]
        jobs = self._image.part(future, "state.jobs")[:, len(self._jobs) : -1]
        at_s = np.array(self._arrivals[:futures])
        jobs["rejected"] = np.isinf(at_s)
        jobs["arrival_s"] = np.maximum.accumulate(np.where(np.isinf(at_s), self._now_s[0], at_s), axis=1)
        source = np.tile(np.arange(1, 1 + futures), len(trials))
        which = np.arange(1 + futures, 1 + futures + len(source))
        first, theta, order, depth = (
            np.repeat(np.array(column), futures)
            for column in zip(*[(first, *player) for first, player in trials], strict=True)
        )
        end_s = np.zeros(len(which))
        self.plays += play_out_episodes(
            self._addresses, self._arenas, source, which, first, theta, order, depth, self._net, end_s
        )
        return end_s.reshape(len(trials), futures)

    def _present(self, name: str) -> np.ndarray:
        assert self._image is not None
        return self._image.part(self._arenas[0], name)

    def _advance(self, choice: int) -> bool:
        score, over = np.zeros(1), np.zeros(1, bool)
        advance_episodes(np.zeros(1, np.int64), np.full(1, choice), self._addresses, score, over, self._now_s)
        return not over[0] and bool(self._present("tally")["choices"])

    def _make_room(self, slots: int) -> None:
        """Allocate arenas and tables for this many episodes of the image."""
        image = self._image
        assert image is not None
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

    def _scene(self, view: ClusterView, jobs: Sequence[ArrivedJob], samples: Sequence[ArrivedJob]) -> EngineScenario:
        """Convert the current state and the samples to columns."""
        machines, now = view.machines, view.now
        before = nextafter(now, -inf)
        if self._classes is None or len(self._classes.table) != len(machines.classes):
            self._classes = demand_classes(machines)
        if self._nodes is None:
            self._nodes = empty_nodes(machines)
        nodes = self._nodes
        if any(not machine.up for machine in machines.list):
            nodes = nodes._replace(table=nodes.table.copy())
            down = [machine.index for machine in machines.list if not machine.up]
            for name in ("idle", "free", "cpus", "memory"):
                nodes.table[name][down] = 0
        every = [*jobs, *samples]
        sizes = [len(job.kind) for job in every]
        first = np.concatenate([[0], np.cumsum(sizes)])
        edges = np.cumsum([0, *[len(job.child) for job in every]])
        tasks = int(first[-1])
        instances = [task.unfinished for job in self._jobs for task in job.tasks]
        rows = records(
            TASK,
            tasks + 1,
            children=np.concatenate(
                [*[job.children[:-1] + at for job, at in zip(every, edges, strict=False)], [edges[-1]]]
            ),
            job=np.repeat(np.arange(len(every)), sizes),
            kind=np.concatenate([job.kind for job in every]),
            instances=np.concatenate([instances, *[job.instances for job in samples]]),
        )
        child = np.concatenate([job.child + at for job, at in zip(every, first, strict=False)]).astype(np.int32)
        ordered = all(job.ordered for job in every)
        order = np.zeros(0, np.int32)
        if not ordered:
            order = np.concatenate([job.order + at for job, at in zip(every, first, strict=False)]).astype(np.int32)
        seconds = np.concatenate([job.seconds for job in every])
        self._first = first[: len(jobs) + 1].tolist()
        place = {job.number: at for job, at in zip(self._jobs, self._first, strict=False)}
        past = []
        for run in view.running.values():
            task, type_ = place[run.task.job.number] + run.task.index, run.type
            takes_s = float(seconds[task, type_])
            ends_s = max(run.estimated_end_s(now), now + _LATE * takes_s)
            since_s = min(ends_s - takes_s, before)
            holds = []
            for node, count, gpus, shared in run.held:
                parts = [(shared.count(gpu), 1 << gpu) for gpu in dict.fromkeys(shared)] or [(count, gpus)]
                holds += [(since_s, task, node.index, *part) for part in parts]
            past += [(*hold, number == len(holds)) for number, hold in enumerate(holds, 1)]
        past.sort(key=lambda row: row[0])
        arrival_s = np.full(len(every), inf)
        arrival_s[: len(jobs)] = [min(job.arrival_s, before) for job in jobs]
        zeros = np.zeros(len(every))
        columns = Jobs(arrival_s, zeros, first, zeros, zeros + inf, zeros + 1.0)
        work = Work(columns, rows, child, seconds, seconds, order, np.array(past, PAST).view(np.recarray), now)
        return EngineScenario(work, self._classes, nodes)
