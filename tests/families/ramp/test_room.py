"""Room for jobs to come, and the policy that keeps it."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest

from dagsim.errors import ConfigError, IllegalDecision
from dagsim.families.ramp.api import (
    RAMP_POLICIES,
    ComputationGraph,
    Fabric,
    Memo,
    Op,
    Partition,
    Planner,
    Ramp,
    RampJob,
    RampKernel,
    RampScenario,
    RampView,
    Rules,
)
from dagsim.families.ramp.view import ARRIVALS, SIZES, Room, free_blocks, ways_in_time


def job(arrival_s: float, beta: float = 1.0) -> RampJob:
    """Takes 5 s on one server, 2.5 s on two."""
    return RampJob(f"{arrival_s:g}", ComputationGraph("one", [Op("1", 0.5, 0.5, 0.0, 0.0)], []), arrival_s, beta, 5)


def kernel(*jobs: RampJob, shape: tuple[int, int, int] = (2, 2, 1), most: int = 4) -> RampKernel:
    return RampKernel(jobs, Planner(Fabric(Ramp(*shape)), Rules(quantum_s=0.01, max_degree=most), memo=Memo()))


def view_after(simulation: RampKernel, *decisions: Partition) -> RampView:
    conversation = simulation.decisions()
    view = next(conversation)
    for decision in decisions:
        view = conversation.send([decision])
    return view


def test_blocks_are_counted_at_the_arrivals_to_come() -> None:
    view = view_after(kernel(job(0), job(1)), Partition(0, 2, servers=0b101))  # ends at 2.5 s; a job comes every 1 s
    room = Room(view)
    assert room.counts.tolist() == [4, 3, 1, 1, 1]  # pairs across groups, two straight; of 8 and 16 none, counted as 1
    assert room.before[0].tolist() == [2, 1, 0, 0, 0]  # at 2 s
    assert room.before[1].tolist() == [4, 3, 1, 0, 0]  # at 3 s


def test_a_placement_takes_what_it_touches_until_it_ends() -> None:
    room = Room(view_after(kernel(job(0), job(1)), Partition(0, 0)))
    left = room.after([0b1, 0b1111], [1.5, 10.0])
    assert left.shape == (2, len(ARRIVALS), len(SIZES))
    assert (left[0] == room.before).all()  # over before the next arrival
    assert left[1, 0].tolist() == [0, 0, 0, 0, 0]
    assert (left[1, -1] == room.before[-1]).all()


def test_counts_of_a_large_fabric_are_those_of_plain_loops() -> None:
    simulation = kernel(job(0), job(1), job(2), shape=(4, 4, 8), most=16)
    view = view_after(simulation, Partition(0, 8), Partition(1, 4))
    room, fabric = Room(view), view.fabric
    for place, at_s in enumerate(2.0 + ahead for ahead in ARRIVALS):
        taken = 0
        for end_s, servers in view.ends:
            taken |= servers if end_s > at_s else 0
        free = [sum(1 for mask in fabric.masks(size) if not mask & taken) for size in SIZES]
        assert room.before[place].tolist() == free


def test_ways_in_time_are_what_outlooks_say() -> None:
    view = view_after(kernel(job(0), job(1, beta=0.6)), Partition(0, 2, servers=0b101))
    ways = list(ways_in_time(view))
    assert [(way.degree, way.servers) for way in ways] == [(2, 0b1010)]
    outlook = view.outlook(2, servers=0b1010)
    assert outlook is not None
    assert ways[0].jct_s == outlook.jct_s
    assert free_blocks(view, 1) == [0b10, 0b1000]


def test_a_job_stays_on_the_servers_that_were_decided() -> None:
    simulation = kernel(job(0))
    simulation.run(_Fixed(Partition(0, 2, servers=0b1010)))
    outlook = simulation.outcomes[0].outlook
    assert outlook is not None
    assert outlook.placement.servers == {1, 3}


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        (0b11, "servers 0x1 already have a job"),
        (1 << 9, "servers 0x200 include some that do not exist; there are 4"),
        (-1, "include some that do not exist; there are 4"),
        (1.0, "servers must be a bit mask, got 1.0"),
        (True, "servers must be a bit mask, got True"),
    ],
)
def test_servers_that_cannot_be_are_refused(servers: int, words: str) -> None:
    conversation = kernel(job(0), job(1)).decisions()
    next(conversation)
    conversation.send([Partition(0, 1, servers=0b1)])
    with pytest.raises(IllegalDecision, match=words):
        conversation.send([Partition(1, 2, servers=servers)])


def test_a_placer_and_servers_together_are_refused() -> None:
    conversation = kernel(job(0)).decisions()
    next(conversation)
    with pytest.raises(IllegalDecision, match="give either a placer or servers, not both"):
        conversation.send([Partition(0, 1, "packed", 0b1)])


def test_servers_that_are_no_block_are_no_place() -> None:
    simulation = kernel(job(0), shape=(4, 4, 1))
    simulation.run(_Fixed(Partition(0, 2, servers=0b1000_0000_0000_0010)))
    assert simulation.outcomes[0].outlook is None


class _Fixed:
    def __init__(self, decision: Partition) -> None:
        self.decision = decision

    def decide(self, view: RampView) -> tuple[Partition, ...]:
        return (self.decision,)


def decided(policy: str, *jobs: RampJob) -> list[int]:
    simulation = kernel(*jobs)
    simulation.run(RAMP_POLICIES.create(policy))
    return [outcome.degree for outcome in simulation.outcomes]


def test_roomy_takes_the_degree_that_leaves_most_room() -> None:
    # of the first it supposes a job each 1.25 s, the time of one on all four servers: they are free again by then
    # then a job each 10 s: whatever it takes is free again by the next arrival, so the first of equals is taken
    assert decided("roomy", job(0), job(10)) == [4, 1]
    # with one each 2 s, only four servers for 1.25 s leave everything free at the next arrival
    assert decided("roomy", job(0), job(2)) == [4, 4]


def test_roomy_keeps_to_its_smallest_degree_where_it_can() -> None:
    assert decided("roomy[least=2]", job(0), job(10)) == [4, 2]
    assert decided("roomy[least=8]", job(0), job(2)) == decided("roomy", job(0), job(2))


def test_roomy_turns_away_what_is_never_in_time() -> None:
    assert decided("roomy", job(0, beta=0.01)) == [0]


def test_roomy_blocks_less_than_the_best_fit_of_the_same_degrees() -> None:
    world = RampScenario(jobs=150, gap_s=0.08, beta="C", placer="best_fit")
    rates = []
    for policy in ("roomy[least=4]", "on_time[least=4]"):
        simulation = world.kernel(1)
        simulation.run(RAMP_POLICIES.create(policy))
        rates.append(np.mean([outcome.reason is not None for outcome in simulation.outcomes]))
    assert rates[0] < rates[1]


def test_tuned_weights_are_named_and_whole() -> None:
    weight_sets = json.loads(files("dagsim.families.ramp").joinpath("roomy.json").read_text())
    assert weight_sets
    for name in weight_sets:
        weights = RAMP_POLICIES.create(f"roomy[tuned={name}]").weights  # type: ignore[attr-defined]
        assert weights.scarcity.shape == weights.blocks.shape == (len(ARRIVALS), len(SIZES))
    with pytest.raises(ConfigError, match="there are no tuned weights called 'nothing'; available: "):
        RAMP_POLICIES.create("roomy[tuned=nothing]")
    with pytest.raises(ConfigError, match="least must be at least 1, got 0"):
        RAMP_POLICIES.create("roomy[least=0]")
