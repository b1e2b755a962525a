"""The planners against their papers."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from support.log_reading import rows_of

from dagsim.model import Cluster, GpuType, Job, Kind, Node, Task
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.planners import (
    GAPS,
    Booking,
    BookingPlanner,
    Calendar,
    Problem,
    plan_cpop,
    plan_dls,
    plan_heft,
    plan_peft,
    rank_down,
    rank_up,
)
from dagsim.testing import heft_example


def papers() -> Problem:
    """The example of Topcuoglu et al. 2002, figure 2, on three processors."""
    graph = heft_example()
    seconds = [[1 / task.speeds[f"P{place}"] for place in (1, 2, 3)] for task in graph.tasks]  # type: ignore[index]
    cost = {(edge.parent, edge.child): edge.bytes / 1e9 for edge in graph.edges}
    return Problem(
        seconds,
        graph.parents,
        graph.children,
        graph.order,
        lambda parent, child: cost[parent, child],
        [[0], [1], [2]],
        [1] * 10,
        Calendar(3),
    )


def times(bookings: dict[int, Booking]) -> dict[int, tuple[int, int, int]]:
    """Per task, counted from 1 as in the paper: processor, start, end."""
    return {
        task + 1: (booking.site + 1, round(booking.start_s), round(booking.end_s))
        for task, booking in sorted(bookings.items())
    }


def test_ranks_are_the_published_ones() -> None:
    up = [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert rank_up(papers()) == pytest.approx(up, abs=1e-3)
    down = [0, 31, 25, 22, 24, 27, 62.333, 66.667, 63.667, 93.333]
    assert rank_down(papers()) == pytest.approx(down, abs=1e-3)


def test_heft_takes_80() -> None:
    bookings = plan_heft(papers())
    assert [task + 1 for task in bookings] == [1, 3, 4, 2, 5, 6, 9, 7, 8, 10]
    assert times(bookings) == {
        1: (3, 0, 9),
        2: (1, 27, 40),
        3: (3, 9, 28),
        4: (2, 18, 26),
        5: (3, 28, 38),
        6: (2, 26, 42),
        7: (3, 38, 49),
        8: (1, 57, 62),
        9: (2, 56, 68),
        10: (2, 73, 80),
    }


def test_cpop_takes_86_with_its_critical_path_on_the_second_processor() -> None:
    bookings = plan_cpop(papers())
    assert max(booking.end_s for booking in bookings.values()) == pytest.approx(86)
    assert {task + 1: booking.site + 1 for task, booking in bookings.items() if task + 1 in (1, 2, 9, 10)} == {
        1: 2,
        2: 2,
        9: 2,
        10: 2,
    }


def small() -> Problem:
    """0 -> 1, 0 -> 2 on two processors, 4 s to send anything."""
    seconds = [[2.0, 3.0], [4.0, 3.0], [6.0, 5.0]]
    return Problem(
        seconds, [[], [0], [0]], [[1, 2], [], []], [0, 1, 2], lambda *_: 4.0, [[0], [1]], [1, 1, 1], Calendar(2)
    )


def test_peft_looks_one_step_ahead() -> None:
    # Optimistic costs of task 0: on P1 max(min(4, 4+3), min(6, 4+5)) = 6; on P2 max(min(8, 3), min(10, 5)) = 5. P1: 2 +
    # 6 = 8, P2: 3 + 5 = 8: a tie, so P1. Then both cost 0 ahead: task 1 (first) P1 2-6 against P2 6-9; task 2 P1 6-12
    # against P2 6-11.
    assert times(plan_peft(small())) == {1: (1, 0, 2), 2: (1, 2, 6), 3: (2, 6, 11)}


def test_dls_picks_the_highest_dynamic_level() -> None:
    # Static levels 2.5 + 5.5 = 8, 3.5, 5.5. Task 0: P1 8 - 0 + 0.5, P2 8 - 0 - 0.5: P1. Then task 2: P1 5.5 - 2 - 0.5 =
    # 3, P2 5.5 - 6 + 0.5 = 0; task 1: P1 3.5 - 2 - 0.5 = 1, P2 3.5 - 6 + 0.5 = -2: task 2 on P1; task 1: P2 6-9 (-2),
    # P1 3.5 - 8 - 0.5 = -5.
    assert times(plan_dls(small())) == {1: (1, 0, 2), 2: (2, 6, 9), 3: (1, 2, 8)}


@pytest.mark.parametrize("planner", [plan_heft, plan_cpop, plan_peft, plan_dls])
def test_nothing_starts_before_its_inputs_are_there_nor_twice_on_one_lane(planner: BookingPlanner) -> None:
    problem = papers()
    bookings = planner(problem)
    assert len(bookings) == 10
    for task, booking in bookings.items():
        assert booking.start_s >= problem.ready_s(task, booking.site, bookings) - 1e-9
    for busy in problem.calendar.busy:
        assert all(first[1] <= second[0] for first, second in pairwise(busy))


def test_a_gap_is_filled() -> None:
    calendar = Calendar(2)
    calendar.book((0, 1), 5.0, 9.0)
    calendar.book((0,), 0.0, 2.0)
    assert calendar.earliest((0, 1), 2, 0.0, 3.0) == (2.0, (0, 1))
    assert calendar.earliest((0, 1), 2, 0.0, 4.0) == (9.0, (0, 1))
    assert calendar.earliest((0, 1), 1, 0.0, 4.0) == (0.0, (1,))
    assert calendar.earliest((0,), 2, 0.0, 1.0)[1] == ()


def first_time(busy: list[list[tuple[float, float]]], width: int, ready_s: float, seconds: float) -> float:
    """The first time that ``Calendar.earliest`` may find, by a look at each in turn."""
    ends = sorted({end for lane in busy for _, end in lane if end > ready_s})
    last = sorted(max([end for _, end in lane], default=0.0) for lane in busy)[width - 1]
    for start in (ready_s, *ends[:GAPS]):
        if sum(all(end <= start or start + seconds <= begin for begin, end in lane) for lane in busy) >= width:
            return start
    return max(ready_s, last)


@pytest.mark.parametrize("seed", range(8))
def test_the_first_gap_is_the_one_that_a_look_at_each_time_finds(seed: int) -> None:
    rng = random.Random(seed)
    calendar, lanes = Calendar(4), [0, 1, 2, 3]
    for _ in range(80):
        width, ready_s, seconds = rng.randint(1, 4), rng.uniform(0, 100), rng.choice((1.0, 2.0, rng.expovariate(0.1)))
        start, taken = calendar.earliest(lanes, width, ready_s, seconds)
        assert start == first_time(calendar.busy, width, ready_s, seconds)
        assert len(taken) == width
        calendar.book(taken, start, start + seconds)


def plainly(problem: Problem) -> dict[int, Booking]:
    """Dynamic levels of all pairs, computed anew for each booking."""
    level = [0.0] * len(problem.seconds)
    for task in reversed(problem.order):
        level[task] = problem.mean_s(task) + max((level[child] for child in problem.children[task]), default=0.0)
    done: dict[int, Booking] = {}
    while len(done) < len(level):
        ready = [
            task for task in range(len(level)) if task not in done and all(p in done for p in problem.parents[task])
        ]
        pairs = [problem.booking(task, site, done) for task in ready for site in problem.sites(task)]
        lifted = [level[b.task] + problem.mean_s(b.task) - problem.seconds[b.task][b.site] - b.start_s for b in pairs]
        problem.book(pairs[max(range(len(pairs)), key=lambda place: round(lifted[place], 6))], done)
    return done


@pytest.mark.parametrize("seed", range(4))
def test_the_highest_dynamic_level_is_found_without_a_look_at_all(seed: int) -> None:
    # 24 tasks of up to 3 parents on two nodes of 2 GPUs, a slower one of 3, and all of these together for the widest
    def drawn() -> Problem:
        rng = random.Random(seed)
        parents = [sorted(rng.sample(range(task), min(task, rng.randint(0, 3)))) for task in range(24)]
        children = [[child for child in range(24) if task in parents[child]] for task in range(24)]
        widths = [rng.choice((1, 1, 2)) for _ in range(24)]
        base = [rng.choice((10.0, 20.0, rng.uniform(1, 50))) for _ in range(24)]
        seconds = [[base_s, base_s, 2 * base_s, 1.5 * base_s] for base_s in base]
        lanes = [[0, 1], [2, 3], [4, 5, 6], list(range(7))]
        return Problem(seconds, parents, children, range(24), lambda *_: 3.0, lanes, widths, Calendar(7))

    assert plan_dls(drawn()) == plainly(drawn())


@pytest.mark.parametrize("width", [1, 2])
def test_lanes_are_known_to_be_busy_for_longer_than_gaps_are_looked_for(width: int) -> None:
    calendar = Calendar(2)
    for number in range(200):  # no gap before 200 s, then lane 1 has one of a second
        calendar.book((0, 1), float(number), number + 1.0)
    calendar.book((0,), 200.0, 300.0)
    calendar.book((1,), 201.0, 300.0)
    assert calendar.idle_s((0, 1), width, 5.0) == (200.0 if width == 1 else 300.0)


def test_before_a_time_known_to_be_idle_nothing_fits() -> None:
    rng = random.Random(5)
    for _ in range(200):
        calendar, lanes = Calendar(3), (0, 1, 2)
        for _ in range(rng.randint(1, 120)):
            width, seconds = rng.randint(1, 3), rng.choice((1.0, 2.0, 7.0))
            ready_s = float(rng.randint(0, 60))
            start, chosen = calendar.earliest(lanes, width, ready_s, seconds)
            assert calendar.idle_s(lanes, width, 0.0) <= start
            calendar.book(chosen, start, start + seconds)


@pytest.mark.parametrize(
    ("policy", "plan"), {"heft": plan_heft, "cpop": plan_cpop, "peft": plan_peft, "dls": plan_dls}.items()
)
def test_a_policy_runs_its_plan(policy: str, plan: BookingPlanner) -> None:
    """Each task starts when and where the planner says, without transfers, as the kernel has no network."""
    graph = heft_example()
    types = tuple(GpuType(f"P{place}", 1, 1, 1, 1, 0) for place in (1, 2, 3))
    cluster = Cluster(tuple(Node(type_.name, type_, 1) for type_ in types))
    bookings = plan(replace(papers(), transfer_s=lambda parent, child: 0.0))
    planned = {(0, task): (booking.site, pytest.approx(booking.start_s)) for task, booking in bookings.items()}

    def planned_starts(*jobs: Job) -> dict[tuple[int, int], tuple[int, float]]:
        schedule = ClusterKernel(cluster, jobs).run(POLICIES.create(policy))
        return {(row.job, row.task): (row.node, row.time_s) for row in rows_of(schedule.log, Kind.STARTED)}

    assert planned_starts(Job("j", graph)) == planned
    # A later job that only P2 can run, in 2 s: in the first gap of P2, and the plan made before it stays.
    late = planned_starts(Job("j", graph), Job.single("k", Task("t", 1.0, gpu_types=("P2",), speeds={"P2": 0.5}), 5.0))
    busy = [(booking.start_s, booking.end_s) for booking in bookings.values() if booking.site == 1]
    gaps = [at for at in (5.0, *(end_s for _, end_s in busy)) if at >= 5.0]
    free = [at for at in gaps if all(end_s <= at + 1e-9 or start_s >= at + 2.0 for start_s, end_s in busy)]
    assert late == planned | {(1, 0): (1, pytest.approx(min(free)))}
