"""Room for instances: the index of bit sets against a look at every machine."""

from __future__ import annotations

import random

import pytest

from dagsim.model import Cluster, Demand
from dagsim.systems.cluster.forks import Fork
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.resources.free_index import EnoughIndex
from dagsim.systems.cluster.resources.nodes import MICRO, DemandClass, NodeState

DEMANDS = [
    *(Demand(gpus, cpus, memory_gb) for gpus in (0.1, 0.25, 0.3, 0.5) for cpus in (0, 2, 7) for memory_gb in (0, 30)),
    *(Demand(gpus, cpus, 0) for gpus in (1, 2, 4) for cpus in (0, 3, 20)),
    Demand(0, 0.5, 1),
]


def best_by_looking(state: ClusterState, demand: DemandClass) -> int:
    """Best fit as docs/inside.md states it, from every machine."""
    roomy = [machine for machine in state.list if machine.room(demand)]
    return min(roomy, key=lambda machine: _rank(machine, demand)).index if roomy else -1


def _rank(machine: NodeState, demand: DemandClass) -> tuple[int, ...]:
    if demand.share:
        free = [free for free in machine.shares.values() if free >= demand.share]
        if machine.shares:
            return 0, min(free, default=MICRO), machine.index
        return 1, machine.idle, machine.index
    return (machine.idle if demand.whole else machine.cpus // MICRO), machine.index


def _free(machine: NodeState) -> tuple[object, ...]:
    return machine.free, machine.idle, machine.shares, machine.cpus, machine.memory


@pytest.mark.parametrize(("seed", "gpus"), [(0, 48), (1, 48), (2, 8)])
def test_the_index_finds_what_a_look_at_every_machine_finds(seed: int, gpus: int) -> None:
    rng = random.Random(seed)
    state = ClusterState(Cluster.of({"V100": gpus}, per_node=4, cpus_per_gpu=6.0, memory_gb_per_gpu=40.0))
    classes = [state.compile(demand, 0) for demand in DEMANDS]
    gangs = [state.compile(Demand(gpus, cpus, 0), width) for gpus in (1, 2) for cpus in (0, 5) for width in (3, 9)]
    held: list[tuple[NodeState, DemandClass, int, int, tuple[int, ...]]] = []
    for _ in range(200):
        demand = rng.choice(classes)
        machine = state.list[rng.randrange(len(state.list))]
        if rng.random() < 0.05:
            if machine.up:
                state.take_down(machine)
            else:
                state.bring_up(machine, 0.0)
        elif held and rng.random() < 0.45:
            machine, demand, count, mask, on = held.pop(rng.randrange(len(held)))
            after = machine.after(demand, count, mask, on)
            state.give(machine, demand, count, mask, on)
            assert _free(after) == _free(machine)
        elif machine.room(demand):
            held.append((machine, demand, 1, *state.take(machine, demand, 1, None)))
        asked = rng.choice(classes)
        assert state.best(asked, 0) == best_by_looking(state, asked)
        assert state.fits(asked) == any(node.room(asked) for node in state.list)
        twin = Fork().of(state)
        assert twin.best(twin.compile(asked.demand, 0), 0) == state.best(asked, 0)
        gang = rng.choice(gangs)
        room = sum(node.room(gang) for node in state.list)
        assert state.fits_on(gang, 0) == (room >= gang.gang)
        placement = state.fit(gang, 0, gang.gang)
        assert (placement is not None) == (room >= gang.gang)
        assert placement is None or sum(share.instances for share in placement) == gang.gang
        assert state.idle_gpus(0) == sum(node.idle for node in state.list if node.up)


def test_amounts_beyond_the_first_64_go_by_the_next_lower_one() -> None:
    state = ClusterState(Cluster.of({"V100": 8}, per_node=4))
    index = EnoughIndex()
    for amount in range(0, 65 * MICRO, MICRO):
        index.ask(amount, ((machine.bit, machine.cpus) for machine in state.list))
    assert index.having(30 * MICRO) == 0b11
    assert index.having(30 * MICRO + 1) == 0b11  # goes by 30 cores
    index.moved(0b01, 48 * MICRO, 12 * MICRO)
    assert index.having(30 * MICRO) == 0b10
    assert index.having(64 * MICRO) == index.having(63 * MICRO)  # the 65th amount is not distinguished


def test_a_task_holds_on_nodes_whatever_runs_there_now() -> None:
    state = ClusterState(Cluster.of({"V100": 8}, per_node=4))
    one, wide = state.compile(Demand(3.0), 0), state.compile(Demand(3.0), 2)
    state.take(state.list[0], one, 1, None)
    state.take_down(state.list[1])
    opened = (wide.nodes, wide.opened)
    assert [state.holds(one, nodes) for nodes in (0b00, 0b01, 0b10, 0b11)] == [False, True, True, True]
    assert [state.holds(wide, nodes) for nodes in (0b01, 0b10, 0b11)] == [False, False, True]
    assert (wide.nodes, wide.opened) == opened
    assert not state.fits(wide)
