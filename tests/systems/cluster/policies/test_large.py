"""Indexes of policies where much waits: they choose as a look at everything would."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from dagsim.model import Task, TaskGraph
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.policies.job_orders import PathLeft, WorkLeft
from dagsim.systems.cluster.policies.orders import _Columns


class Waiting(SimpleNamespace):
    """As much of a ready task as the columns look at."""

    def __lt__(self, other: Waiting) -> bool:
        return self.order < other.order


@pytest.mark.parametrize("seed", range(3))
def test_who_leads_its_block_is_who_has_waited_longest_for_its_rate(seed):
    rng = random.Random(seed)
    columns, waiting, now, taken = _Columns(), {}, 0.0, []
    for order in range(1500):
        if rng.random() < 0.3:
            now += rng.choice((0.0, 1.0, rng.expovariate(0.1)))
        task = Waiting(order=order if rng.random() < 0.9 else -order, waiting=1)
        rate, since = rng.choice((0.5, 1.0, 1.0 + 2**-52, rng.random() + 0.01)), rng.choice((now, now / 2, 0.0))
        columns.append(task, rate, since)
        waiting[id(task)] = task, rate, since
        if rng.random() < 0.4:
            best = min(waiting.values(), key=lambda entry: (-((now - entry[2]) * entry[1]), entry[0].order))
            _, _, leader = columns.first(now)
            assert leader is best[0]
            leader.waiting = 0
            taken.append(waiting.pop(id(leader)))
    assert len(taken) > 500


def test_what_is_left_of_a_wide_job_is_added_up_to_the_same_bits():
    rng = random.Random(1)
    graph = TaskGraph(tuple(Task(str(at), rng.random(), instances=2) for at in range(200)))
    tasks = [
        SimpleNamespace(task=task, best_s=rng.random(), unfinished=2, rank_s=rng.random(), index=at)
        for at, task in enumerate(graph.tasks)
    ]
    job = SimpleNamespace(number=0, tasks=tasks)
    work, path = WorkLeft(), PathLeft()
    for at in rng.sample(range(200), 199):
        for _ in range(2):
            assert work(job) == ordered_sum([task.best_s * task.unfinished * (task.task.gpus or 1.0) for task in tasks])
            assert path(job) == max(task.rank_s for task in tasks if task.unfinished)
            work.ended(SimpleNamespace(job=job, task=tasks[at]))
            tasks[at].unfinished -= 1
