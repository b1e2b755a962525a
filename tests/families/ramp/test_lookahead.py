"""The look-ahead: small steps worked by hand, and the fast walk against one that goes pair by pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.families.ramp.api import DDLS, ComputationGraph, Fabric, Memo, Op, OpPlacement, Planner, Ramp, Rules
from dagsim.families.ramp.graph import branches, op_chain
from dagsim.families.ramp.lookahead import StepTime, look_ahead
from dagsim.families.ramp.partition import PartitionedGraph, partitioned
from dagsim.families.ramp.timing import GraphOrder, Srpt, TimedGraph, timed
from dagsim.model import gpu_type

PARALLEL = Rules(flows="parallel")
RAMP = Ramp(2, 2, 1, node_bytes_per_s=2.0, propagation_s=1.0, io_s=0.0)
"""One byte a second on each channel, one second of latency."""
SRPT = Srpt()


def placed(
    parts: PartitionedGraph, *blocks: tuple[int, ...], rules: Rules = PARALLEL, fabric: Fabric | None = None
) -> TimedGraph:
    distinct = tuple(dict.fromkeys(blocks))
    placement = OpPlacement(0, distinct, tuple(distinct.index(block) for block in blocks))
    return timed(parts, placement, fabric or Fabric(RAMP), rules)


def row(*costs: tuple[float, float], size: float = 4.0) -> ComputationGraph:
    ops = [Op(str(n), forward, backward, size, 0.0) for n, (forward, backward) in enumerate(costs, 1)]
    return ComputationGraph("row", ops, [(n, n + 1) for n in range(len(ops) - 1)])


def walked(graph: ComputationGraph, *blocks: tuple[int, ...], rules: Rules = PARALLEL, order=SRPT) -> StepTime:  # type: ignore[no-untyped-def]
    parts = partitioned(graph, tuple(map(len, blocks)), rules)
    fabric = Fabric(RAMP)
    return look_ahead(placed(parts, *blocks, rules=rules), order(0, parts, fabric), fabric, rules)


def test_on_one_server_a_step_is_the_sum_of_both_passes() -> None:
    step = walked(row((1, 2), (3, 4)), (0,), (0,))
    assert step.seconds == step.computation_s == step.busy_s == 10.0
    assert step.communication_s == 0.0


def test_between_two_servers_both_passes_wait_for_the_transfer() -> None:
    # 1 forward; 1 + 4 s on the channel; 3 + 4 on the other server; 1 + 4 s back; 2 backward
    step = walked(row((1, 2), (3, 4)), (0,), (1,))
    assert step.seconds == 1 + 5 + 7 + 5 + 2
    assert step.communication_s == 10.0


def test_pieces_exchange_their_weights_at_the_end() -> None:
    # two pieces: half the time each pass, and then an exchange of 4 bytes of weights among two groups:
    # a collective of 4 bytes, half of them a round at two channels of 1 B/s: 2 x (1 + 2 / 2) s; adding is almost free
    graph = ComputationGraph("one", [Op("1", 2.0, 4.0, 0.0, 4.0)], [])
    step = walked(graph, (0, 2))
    assert step.seconds == pytest.approx(1 + 2 + 4.0)
    assert step.communication_s == pytest.approx(4.0)
    assert step.busy_s == pytest.approx(6.0)


def test_shortest_first_runs_the_short_operation_first() -> None:
    # On server 0 a long (5) and a short (1) operation are ready; the short one's child waits on server 1 for 1 s more.
    ops = [Op("1", 5.0, 0.0, 0.0, 0.0), Op("2", 1.0, 0.0, 0.0, 0.0), Op("3", 10.0, 0.0, 0.0, 0.0)]
    graph = ComputationGraph("two", ops, [(1, 2)])
    assert walked(graph, (0,), (0,), (1,)).seconds == 1 + 10
    assert walked(graph, (0,), (0,), (1,), order=GraphOrder()).seconds == 5 + 1 + 10


def test_a_shorter_operation_that_becomes_ready_takes_over_at_the_tick() -> None:
    # 3 becomes ready on server 0 when 2 ends on server 1 after 1 s: it takes over from 1 with 9 s left.
    ops = [
        Op("1", 10.0, 0.0, 0.0, 0.0),
        Op("2", 1.0, 0.0, 0.0, 0.0),
        Op("3", 2.0, 0.0, 0.0, 0.0),
        Op("4", 9.0, 0.0, 0.0, 0.0),
    ]
    graph = ComputationGraph("four", ops, [(1, 2), (2, 3)])
    step = walked(graph, (0,), (1,), (0,), (1,))
    assert step.seconds == 12.0  # server 0 is never idle; 4 runs from 3 s on


def test_flows_on_one_channel_go_in_parallel_or_one_by_one() -> None:
    # Two producers on server 0 (1 s and 2 s) send 4 bytes each to server 1: ready at 1 and 3 s.
    ops = [Op("1", 1.0, 0.0, 4.0, 0.0), Op("2", 2.0, 0.0, 4.0, 0.0), Op("3", 0.0, 0.0, 0.0, 0.0)]
    graph = ComputationGraph("join", ops, [(0, 2), (1, 2)])
    parallel = walked(graph, (0,), (0,), (1,))
    serial = walked(graph, (0,), (0,), (1,), rules=Rules())
    assert parallel.seconds == 3 + 5 + 5  # both arrive at 8; back together as well
    # The first ends at 6, the second at 11. Back: both are ready together, and queue on the channel.
    assert serial.seconds == 11 + 5 + 5


def test_a_piece_costs_what_it_takes_on_the_gpu_of_its_server() -> None:
    graph = ComputationGraph("one", [Op("1", 2.0, 4.0, 0.0, 0.0, seconds_on={"T4": (6.0, 12.0)})], [])
    fabric = Fabric(RAMP, [gpu_type(name) for name in ("A100-80", "T4", "A100-80", "T4")])
    parts = partitioned(graph, (2,), PARALLEL)
    step = look_ahead(placed(parts, (0, 1), fabric=fabric), SRPT(0, parts, fabric), fabric, PARALLEL)
    assert step.computation_s == step.seconds == 3.0 + 6.0  # half of the T4's times: the slower piece decides
    assert step.busy_s == pytest.approx(1.0 + 3.0 + 2.0 + 6.0)


@dataclass
class Pair:
    """One dependency between two pieces."""

    source: int
    target: int
    seconds: float
    flows: bool
    channel: tuple[int, int]
    left: float = field(init=False)
    ready_at: int = -1
    done: bool = False

    def __post_init__(self) -> None:
        self.left = self.seconds


def pair_by_pair(at: TimedGraph, fabric: Fabric, rules: Rules) -> StepTime:
    """The step as ddls walks it: every dependency on its own, all that are ready going on at the full rate."""
    parts, count = at.parts, len(at.parts.graph)
    ranks = SRPT(0, parts, fabric).ranks[0]
    blocks = [at.placement.block(op % count) for op in range(2 * count)]
    first = np.cumsum([0, *map(len, blocks)]).tolist()
    server = [one for block in blocks for one in block]
    op_of = [op for op, block in enumerate(blocks) for _ in block]
    left = [parts.graph.costs()[op] / len(blocks[op]) for op in op_of]
    pairs = [
        Pair(
            first[op] + place,
            first[bundle.target] + to,
            bundle.seconds,
            bundle.flows,
            (blocks[op][place], blocks[bundle.target][to]),
        )
        for op in range(2 * count)
        for bundle in at.bundles[op]
        for place, targets in enumerate(bundle.lane.targets)
        for to in targets
    ]
    parents: list[set[int]] = [set() for _ in left]
    for pair in pairs:
        if op_of[pair.source] != op_of[pair.target]:
            parents[pair.target].add(pair.source)
    seen = [0] * len(left)
    ready = {piece for piece in range(len(left)) if not parents[piece]}
    finished: set[int] = set()
    now = communication_s = computation_s = busy_s = 0.0
    tick = 0
    while len(finished) < len(left) or not all(pair.done for pair in pairs):
        running: dict[int, int] = {}
        for piece in ready:
            holder = running.get(server[piece])
            if holder is None or ranks[op_of[piece]] > ranks[op_of[holder]]:
                running[server[piece]] = piece
        open_ = [pair for pair in pairs if pair.ready_at >= 0 and not pair.done]
        free = [pair for pair in open_ if not pair.flows]
        heads: dict[tuple[int, int], Pair] = {}
        for pair in open_:
            head = heads.get(pair.channel)
            if head is None or (pair.seconds, -pair.ready_at) < (head.seconds, -head.ready_at):
                heads[pair.channel] = pair
        flow_s = 0.0 if free else min((pair.left for pair in heads.values()), default=inf)
        tick_s = min(flow_s, min((left[piece] for piece in running.values()), default=inf))
        assert tick_s < inf
        tick += 1
        now += tick_s
        computation_s += tick_s if running else 0.0
        busy_s += tick_s * len(running)
        for piece in running.values():
            left[piece] -= tick_s
            if left[piece] <= 0:
                ready.discard(piece)
                finished.add(piece)
                for pair in pairs:
                    if pair.source == piece:
                        pair.ready_at = tick
        if not free and open_:
            communication_s += tick_s
        for pair in free or open_:
            pair.left -= 0.0 if free else tick_s
            if free or pair.left <= 0:
                pair.done = True
                if rules.early_release or op_of[pair.source] != op_of[pair.target]:
                    seen[pair.target] += 1
                    if seen[pair.target] == len(parents[pair.target]):
                        ready.add(pair.target)
    return StepTime(now, communication_s, computation_s, tick, busy_s)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    degree=st.sampled_from([1, 2, 4]),
    shape=st.sampled_from(["chain", "branches"]),
    ddls=st.booleans(),
    forward_s=st.sampled_from([1e-4, 1e-1]),
)
def test_walking_by_cohorts_equals_walking_pair_by_pair(
    seed: int, degree: int, shape: str, ddls: bool, forward_s: float
) -> None:
    rng = np.random.default_rng(seed)
    graph = (
        op_chain(4, rng=rng, forward_s=forward_s) if shape == "chain" else branches(2, 2, rng=rng, forward_s=forward_s)
    )
    rules = DDLS if ddls else PARALLEL
    fabric = Fabric(Ramp(2, 2, 2, ddls=ddls))
    splits = tuple(int(pieces) for pieces in rng.choice([1, 2, 4][: degree.bit_length()], len(graph)))
    parts = partitioned(graph, splits, rules)
    blocks = [tuple(int(one) for one in rng.choice(8, pieces, replace=False)) for pieces in splits]
    at = placed(parts, *blocks, rules=rules, fabric=fabric)
    fast = look_ahead(at, SRPT(0, parts, fabric), fabric, rules)
    slow = pair_by_pair(at, fabric, rules)
    assert fast.ticks == slow.ticks
    assert fast == pytest.approx(slow, rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), degree=st.sampled_from([1, 2, 4, 8]), flows=st.sampled_from(["serial", "parallel"]))
def test_no_step_beats_its_critical_path_or_its_busiest_server(seed: int, degree: int, flows: str) -> None:
    rng = np.random.default_rng(seed)
    rules = Rules(flows=flows)  # type: ignore[arg-type]
    planner = Planner(Fabric(Ramp(4, 2, 2)), rules, memo=Memo())
    graph = branches(3, 2, rng=rng)
    parts = planner.parts(graph, degree)
    placement = planner.place(parts, 0)
    assert placement is not None
    step = planner.step(parts, placement)
    assert step.seconds >= planner.shortest_step_s(graph) * (1 - 1e-12)
    assert step.busy_s == pytest.approx(graph.step_s)
    assert step.seconds * len(placement.servers) >= step.busy_s * (1 - 1e-12)
    assert max(step.communication_s, step.computation_s) <= step.seconds * (1 + 1e-12)


def test_flows_one_by_one_take_longer_than_in_parallel() -> None:
    rng = np.random.default_rng(5)
    graph = branches(4, 3, rng=rng, forward_s=1e-5)
    seconds = {}
    for flows in ("serial", "parallel"):
        planner = Planner(Fabric(Ramp(2, 2, 2)), Rules(flows=flows), memo=Memo())  # type: ignore[arg-type]
        parts = planner.parts(graph, 4)
        placement = planner.place(parts, 0)
        assert placement is not None
        seconds[flows] = planner.step(parts, placement).seconds
    assert seconds["serial"] > seconds["parallel"]
