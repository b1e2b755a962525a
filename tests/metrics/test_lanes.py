from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagsim.metrics import columns
from dagsim.metrics.lanes import bars_of, lanes_of
from dagsim.model import Cluster, Node, gpu_type
from dagsim.model.log import Schedule

TWO_NODES = Cluster.of({"T4": 8}, per_node=4)


def bars(schedule):
    cols = columns(schedule)
    return bars_of(cols, lanes_of(cols))


def assert_no_overlap(schedule):
    cols = columns(schedule)
    drawn = bars(schedule)
    boxes = zip(cols.runs.start_s[drawn.run], cols.runs.end_s[drawn.run], drawn.top, drawn.bottom, strict=True)
    for (start, end, top, bottom), (other_start, other_end, other_top, other_bottom) in itertools.combinations(
        boxes, 2
    ):
        apart_in_time = end <= other_start or other_end <= start
        assert apart_in_time or bottom <= other_top + 1e-9 or other_bottom <= top + 1e-9


def test_every_gpu_has_a_lane_and_nodes_a_gap_between_them():
    lanes = lanes_of(columns(Schedule(TWO_NODES)))
    assert lanes.first.tolist() == [0.0, 4.5]
    assert (lanes.total, lanes.height) == (8, 8.5)


def test_cpu_machines_have_lanes_only_where_there_is_no_gpu():
    mixed = Cluster((Node("cpu", cpus=4), Node("gpu", gpu_type("T4"), 2)))
    assert lanes_of(columns(Schedule(mixed))).count.tolist() == [0, 2]
    assert lanes_of(columns(Schedule(Cluster((Node("a", cpus=4), Node("b", cpus=4)))))).count.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("mask", "extents"),
    [
        (0b0001, [(0, 1)]),
        (0b0110, [(1, 3)]),
        (0b1011, [(0, 2), (3, 4)]),
        (0b1111, [(0, 4)]),
        (0b0101, [(0, 1), (2, 3)]),
    ],
)
def test_a_run_is_drawn_on_the_gpus_it_held(schedule_of, mask, extents):
    drawn = bars(schedule_of(TWO_NODES, [(0.0, 1.0, 1, mask, float(mask.bit_count()))]))
    assert list(zip(drawn.top, drawn.bottom, strict=True)) == [(4.5 + top, 4.5 + bottom) for top, bottom in extents]
    assert set(drawn.run) == {0}


def test_runs_that_share_a_gpu_are_stacked_by_their_shares(schedule_of):
    drawn = bars(
        schedule_of(TWO_NODES, [(0.0, 4.0, 0, 0b10, 0.5), (1.0, 2.0, 0, 0b10, 0.25), (3.0, 5.0, 0, 0b10, 0.5)])
    )
    assert drawn.top.tolist() == [1.0, 1.5, 1.5]
    assert drawn.bottom.tolist() == [1.5, 1.75, 2.0]


@given(st.integers(0, 2**32))
def test_runs_that_share_gpus_never_overlap(shared_gpus, seed):
    assert_no_overlap(shared_gpus(seed))


@given(st.integers(0, 2**32))
def test_runs_on_gpus_without_a_name_get_lanes_of_their_own(schedule_of, seed):
    # at most 8 runs of up to 8 GPUs at a time: always room on 64
    rng = np.random.default_rng(seed)
    cluster = Cluster((Node("big", gpu_type("T4"), 64),))
    runs = [
        (8.0 * turn + late, 8.0 * turn + late + 8.0, 0, 0, float(rng.integers(1, 9)))
        for turn in range(4)
        for late in range(8)
    ]
    schedule = schedule_of(cluster, runs)
    assert_no_overlap(schedule)
    drawn = bars(schedule)
    heights = np.bincount(drawn.run, weights=drawn.bottom - drawn.top)
    assert heights.tolist() == columns(schedule).runs.held.tolist()
    assert drawn.bottom.max() <= 64


def test_runs_on_cpu_machines_share_the_lane_of_their_node(schedule_of):
    cluster = Cluster((Node("a", cpus=4), Node("b", cpus=4)))
    schedule = schedule_of(cluster, [(0.0, 4.0, 0, 0, 0.0), (1.0, 2.0, 0, 0, 0.0), (0.0, 1.0, 1, 0, 0.0)])
    assert_no_overlap(schedule)
    drawn = bars(schedule)
    assert sorted((drawn.bottom - drawn.top).tolist()) == [0.5, 0.5, 1.0]


def test_runs_that_took_no_time_are_not_drawn(schedule_of):
    assert len(bars(schedule_of(TWO_NODES, [(1.0, 1.0, 0, 1, 1.0)])).run) == 0
