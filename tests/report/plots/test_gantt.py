"""The Gantt chart, point by point, for runs that can be checked by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_hex
from report.plots.drawn import texts
from support.drawn_schedules import EIGHT, RUNS

from dagsim.metrics.columns import columns
from dagsim.model import Cluster, Kind, Node, Record, gpu_type
from dagsim.report.plots import gantt
from dagsim.report.plots.gantt import binned
from dagsim.report.plots.style import INK


def boxes(collection: Any) -> list[tuple[float, ...]]:
    """Left, right, top and bottom of each box of a collection, with its corners in order."""
    edges = []
    for path in collection.get_paths():
        (left, top), (right, top2), (right2, bottom), (left2, bottom2) = path.vertices[:4].tolist()
        assert (top, right, bottom, left) == (top2, right2, bottom2, left2)
        edges.append((left, right, top, bottom))
    return edges


def words(axes: Any) -> dict[str, tuple[float, float]]:
    """Position of each text except the numbers of GPUs."""
    return {
        text.get_text(): pytest.approx(text.get_position()) for text in axes.texts if not text.get_text().isdecimal()
    }


# Two nodes of four lanes, half a lane apart: lanes 0 to 4 and 4.5 to 8.5. Time is in minutes. A bar leaves 6 % of a
# lane free above and below.
def test_the_gantt_draws_each_run_on_its_lanes_from_its_start_to_its_end(schedule_of) -> None:
    drawn = gantt(schedule_of(EIGHT, RUNS))
    (axes,) = drawn.axes
    assert boxes(axes.collections[0]) == [
        *map(
            pytest.approx,
            [
                (0, 100 / 60, 0.06, 1.94),
                (10 / 60, 40 / 60, 3.06, 3.94),
                (50 / 60, 400 / 60, 4.56, 5.44),
                (50 / 60, 400 / 60, 6.56, 7.44),
            ],
        )
    ]
    assert len(axes.collections) == 1
    assert axes.collections[0].get_linewidths() == [0.5]
    colours = [to_hex(colour) for colour in axes.collections[0].get_facecolors()]
    assert colours == ["#0072b2", "#e69f00", "#009e73", "#009e73"]
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 400 / 60), (8.7, -0.2))
    assert drawn.get_size_inches().tolist() == pytest.approx([11, 1.7 + 0.17 * 8.5])
    assert axes.get_title(loc="left") == "3 jobs on 8 GPUs"
    assert axes.get_title(loc="right") == "4 x A100-40   4 x T4"
    assert words(axes) == {"job0": (50 / 60, 1.0), "job1": (25 / 60, 3.5), "job2": (225 / 60, 5.0)}
    assert {text.get_text(): to_hex(text.get_color()) for text in axes.texts if text.get_text()[:3] == "job"} == {
        **{"job0": "#ffffff", "job1": INK, "job2": "#ffffff"}
    }
    lanes = [(text.get_text(), text.get_position()) for text in axes.texts if text.get_text().isdecimal()]
    assert lanes == [(str(gpu), (0.0, first + gpu)) for first in (0.5, 5.0) for gpu in range(4)]
    assert axes.get_yticks().tolist() == [2, 6.5]
    assert axes.yaxis.get_tick_params()["labelsize"] == 9
    assert drawn.legends == []


def test_the_gantt_is_one_collection_of_boxes(schedule):
    axes = gantt(schedule).axes[0]
    (boxes,) = (drawn for drawn in axes.collections if isinstance(drawn, PolyCollection))
    assert len(boxes.get_paths()) == 4  # GPUs 0 and 2 of the last run are not neighbours
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a100-40-0", "t4-0"]
    assert axes.get_xlabel() == "time [min]"


def test_each_run_is_labelled_at_most_once_and_each_gpu_is_numbered(schedule):
    assert sorted(texts(gantt(schedule))) == [*"00112233", "job0", "job1", "job2"]


def test_a_label_needs_room_in_width_and_height(schedule_of) -> None:
    # A minute is 11 x 72 x 0.85 / (400 / 60) = 100.98 points wide; a name of four letters needs 20.8: 12.36 s.
    runs = [
        *RUNS[2:],
        (0.0, 12.3, 0, 1, 1.0),
        (20.0, 32.5, 0, 1, 1.0),
        (20.0, 99.0, 0, 2, 0.5),
        (20.0, 99.0, 0, 4, 0.8),
    ]
    drawn = gantt(schedule_of(EIGHT, runs))
    assert set(words(drawn.axes[0])) == {"job1", "job3", "job4"}  # job2 has half a lane
    assert words(drawn.axes[0])["job1"] == (26.25 / 60, 0.5)
    half = boxes(drawn.axes[0].collections[0])[4]
    assert half[2:] == pytest.approx((1.03, 1.47))  # a share is placed at the top of its lane


def test_the_gantt_marks_set_up_outages_and_runs_that_were_stopped(schedule_of) -> None:
    down = [Record(Kind.DOWN, 120.0, node=1)]
    cols = columns(schedule_of(EIGHT, RUNS, Kind.PREEMPTED, down))
    cols = replace(cols, runs=replace(cols.runs, computing_s=np.array([30.0, 10.0, np.nan])))
    drawn = gantt(cols)
    outage, _, set_up, ends = drawn.axes[0].collections
    assert isinstance(ends, PathCollection)
    assert boxes(outage) == [pytest.approx((2, 400 / 60, 4.5, 8.5))]
    assert boxes(set_up) == [pytest.approx((0, 0.5, 0.06, 1.94))]  # run 1 computes at once
    assert ends.get_offsets().tolist() == [
        *map(pytest.approx, [(100 / 60, 1.0), (40 / 60, 3.5), (400 / 60, 5.0), (400 / 60, 7.0)])
    ]
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["node down", "set-up, transfer", "preempted"]
    assert words(drawn.axes[0])["job0"] == (65 / 60, 1.0)  # the middle of what it computes


def test_the_gantt_tells_what_stopped_runs_and_nodes(schedule_of):
    down = [Record(Kind.DOWN, 120.0, node=0)]
    drawn = gantt(schedule_of(EIGHT, RUNS, Kind.FAILED, down))
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["node down", "failed"]


def test_many_lanes_have_small_names_and_no_labels(schedule_of) -> None:
    drawn = gantt(schedule_of(Cluster.of({"T4": 164}, per_node=4), RUNS))
    axes = drawn.axes[0]
    assert list(axes.texts) == []  # a lane is 14 x 72 x 0.8 / 184.4 = 4.4 points high
    assert drawn.get_size_inches().tolist() == [11, 14]
    assert axes.yaxis.get_tick_params()["labelsize"] == 6
    forty = gantt(schedule_of(Cluster.of({"T4": 48}, per_node=4), RUNS)).axes[0]
    assert len(forty.texts) == 48 + 3
    assert forty.yaxis.get_tick_params()["labelsize"] == 9
    fifty = gantt(schedule_of(Cluster.of({"T4": 52}, per_node=4), RUNS)).axes[0]
    assert len(fifty.texts) == 3  # above 48 lanes GPUs have no numbers
    # The chart has bars for up to 200 lanes.
    assert len(gantt(schedule_of(Cluster.of({"T4": 200}, per_node=8), RUNS)).axes[0].images) == 0
    assert len(gantt(schedule_of(Cluster.of({"T4": 201}, per_node=1), RUNS)).axes[0].images) == 1


def test_a_large_schedule_is_shaded_by_node(schedule_of):
    cluster = Cluster.of({"T4": 1600})
    runs = [(0.0, 100.0, 7, 0b1111, 4.0), (0.0, 50.0, 8, 0b11111111, 8.0)]
    (image,) = gantt(schedule_of(cluster, runs)).axes[0].images
    share = image.get_array()
    assert share.shape[0] == 200
    assert share[7].min() == share[7].max() == 0.5
    assert share[8].mean() == pytest.approx(0.5)
    assert share[[0, 199]].max() == 0.0


def test_a_shaded_gantt_tells_shares_outages_and_its_rows(schedule_of) -> None:
    # 25 nodes of 8 GPUs and one of 4: 26 rows, a name each
    cluster = Cluster((*(Node(f"n{at}", gpu_type("T4"), 8) for at in range(25)), Node("z", gpu_type("T4"), 4)))
    down = [Record(Kind.DOWN, 300.0, node=2)]
    drawn = gantt(schedule_of(cluster, [(0.0, 400.0, 0, 0b11, 2.0), (100.0, 400.0, 25, 0b1111, 4.0)], extra=down))
    axes, bar = drawn.axes
    (image,) = axes.images
    share = image.get_array()
    assert share.shape == (26, 900)
    assert share[0].tolist() == pytest.approx([0.25] * 900)
    assert share[25].tolist() == pytest.approx([0.0] * 225 + [1.0] * 675, abs=1e-9)
    assert share.mask[2].tolist() == [False] * 675 + [True] * 225
    assert share.mask.sum() == 225
    assert image.get_extent() == [0, 400 / 60, 25.5, -0.5]
    assert image.get_clim() == (0, 1)
    assert drawn.get_size_inches().tolist() == pytest.approx([11, 2.0 + 0.12 * 26])
    assert axes.get_yticks().tolist() == list(range(26))
    assert bar.get_ylabel() == "GPUs held   (orange: node down)"
    assert bar.get_yticks().tolist() == [0, 0.5, 1]
    assert axes.get_ylabel() == "26 nodes"


def test_a_large_cluster_without_gpus_is_shaded_by_its_runs(schedule_of) -> None:
    cluster = Cluster(tuple(Node(f"n{at}", cpus=4) for at in range(1200)))
    runs = [(0.0, 400.0, 6, 0, 0.0), (0.0, 400.0, 7, 0, 0.0), (0.0, 200.0, 7, 0, 0.0)]
    axes, bar = gantt(schedule_of(cluster, runs)).axes
    share = axes.images[0].get_array()
    assert share.shape == (600, 900)  # two nodes share a row
    assert share[3].tolist() == pytest.approx([1.5] * 450 + [1.0] * 450)
    assert share.sum() == pytest.approx(share[3].sum())
    assert axes.get_yticks().tolist() == list(range(0, 600, 15))
    assert [label.get_text() for label in axes.get_yticklabels()][:2] == ["n0", "n30"]
    assert bar.get_ylabel() == "runs per node"
    assert axes.get_title(loc="left") == "3 jobs on 1,200 CPU machines"


def test_bins_hold_the_averages_of_a_plain_loop():
    rng = np.random.default_rng(3)
    start_s = rng.uniform(-5, 100, 40)
    end_s, row, weight = start_s + rng.exponential(20, 40), rng.integers(0, 3, 40), rng.uniform(0, 2, 40)
    edges_s = np.linspace(0, 90, 10)
    expected = np.zeros((3, 9))
    for start, end, where, much in zip(start_s, end_s, row, weight, strict=True):
        for place, (left, right) in enumerate(itertools.pairwise(edges_s)):
            expected[where, place] += much * max(0.0, min(end, right) - max(start, left)) / 10
    np.testing.assert_allclose(binned(row, start_s, end_s, weight, edges_s, 3), expected, atol=1e-12)
