"""What the plots draw, point by point, for runs that can be checked by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_hex

from dagsim.metrics.columns import columns
from dagsim.metrics.paired import Verdict
from dagsim.metrics.standings import Sample, standings
from dagsim.model import Cluster, Kind, Node, gpu_type
from dagsim.report.plots import by_priority, comparison, gantt, jct_cdf, timeline
from dagsim.report.plots.curves import learning_curves
from dagsim.report.plots.style import (
    BLUE,
    GREY,
    INK,
    LINE,
    ORANGE,
    dress,
    figure,
    headline,
    log_seconds,
    nothing,
    unit_of,
)
from dagsim.report.plots.workload import workload

EIGHT = Cluster.of({"A100-40": 4, "T4": 4}, per_node=4)
RUNS = [(0.0, 100.0, 0, 0b0011, 2.0), (10.0, 40.0, 0, 0b1000, 1.0), (50.0, 400.0, 1, 0b0101, 2.0)]


def boxes(collection: Any) -> list[tuple[float, ...]]:
    """Left, right, top and bottom of each box of a collection, with its corners in order."""
    edges = []
    for path in collection.get_paths():
        (left, top), (right, top2), (right2, bottom), (left2, bottom2) = path.vertices[:4].tolist()
        assert (top, right, bottom, left) == (top2, right2, bottom2, left2)
        edges.append((left, right, top, bottom))
    return edges


def line(drawn: Any) -> tuple[list[float], list[float]]:
    return list(map(float, drawn.get_xdata())), list(map(float, drawn.get_ydata()))


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
    down = [(Kind.DOWN, 120.0, -1, -1, -1, 1, 0, 0, 0.0)]
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


def test_a_shaded_gantt_tells_shares_outages_and_its_rows(schedule_of) -> None:
    # 25 nodes of 8 GPUs and one of 4: 26 rows, a name each
    cluster = Cluster((*(Node(f"n{at}", gpu_type("T4"), 8) for at in range(25)), Node("z", gpu_type("T4"), 4)))
    down = [(Kind.DOWN, 300.0, -1, -1, -1, 2, 0, 0, 0.0)]
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


def test_the_cdf_steps_at_each_completion(schedule_of) -> None:
    drawn = jct_cdf({"a": schedule_of(EIGHT, RUNS), "b": schedule_of(EIGHT, RUNS[:1])})
    (axes,) = drawn.axes
    low, high = 30 / 1.2, 350 * 1.2
    assert axes.get_xlim() == pytest.approx((low, high))
    first, second = axes.get_lines()
    assert line(first) == (pytest.approx([low, 30, 100, 350, high]), pytest.approx([0, 1 / 3, 2 / 3, 1, 1]))
    assert line(second) == (pytest.approx([low, 100, high]), [0, 1, 1])
    assert [curve.get_color() for curve in (first, second)] == [BLUE, ORANGE]
    assert [curve.get_label() for curve in (first, second)] == ["a: mean 160 s", "b: mean 100 s"]
    assert axes.get_ylim() == (0, 1.02)
    assert drawn.get_size_inches().tolist() == [7.0, 4.2]
    many = jct_cdf({str(at): schedule_of(EIGHT, RUNS) for at in range(8)}).axes[0].get_lines()
    assert [(curve.get_color(), curve.get_linestyle()) for curve in many][5:7] == [("#CC79A7", "-"), (BLUE, "--")]
    nobody = schedule_of(EIGHT, RUNS, Kind.FAILED)
    assert [text.get_text() for text in jct_cdf({"a": nobody}).axes[0].texts] == ["no job completed"]
    both = jct_cdf({"a": nobody, "b": schedule_of(EIGHT, RUNS)}).axes[0].get_lines()
    assert line(both[0])[1] == [0, 0]
    assert both[0].get_label() == "a: 3 of 3 unfinished"


def test_the_timeline_stacks_types_under_what_is_up(schedule_of) -> None:
    up = [(Kind.DOWN, 200.0, -1, -1, -1, 0, 0, 0, 0.0), (Kind.UP, 300.0, -1, -1, -1, 0, 0, 0, 0.0)]
    drawn = timeline(schedule_of(EIGHT, RUNS, extra=up))
    above, below = drawn.axes
    at = [second / 60 for second in (0, 10, 40, 50, 100, 200, 300, 400)]
    lower, upper = above.collections
    assert [area.get_label() for area in (lower, upper)] == ["A100-40", "T4"]

    def edges(filled: Any, time: float) -> tuple[float, float]:
        """Lower and upper edge just after a moment."""
        vertices = filled.get_paths()[0].vertices
        values = vertices[np.isclose(vertices[:, 0], time), 1]
        return values.min(), values.max()

    (up_line,) = above.get_lines()
    assert line(up_line) == (pytest.approx(at), [8, 8, 8, 8, 8, 4, 8, 8])
    assert above.get_ylim() == (0, pytest.approx(8 * 1.05))
    assert edges(upper, at[6]) == (0, 2)
    assert edges(lower, at[1]) == (0, 3)  # 2 before 10 s, 3 after
    (running,) = below.get_lines()
    assert line(running) == (pytest.approx(at), [1, 2, 1, 2, 1, 1, 1, 1])
    assert below.get_ylim() == (0, pytest.approx(2 * 1.08))
    assert below.get_xlim() == (0, pytest.approx(400 / 60))
    assert below.get_title(loc="left") == "Jobs waiting: 0 on average, 0 at most"
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["up", "T4", "A100-40"]
    assert [text.get_text() for text in below.get_legend().get_texts()] == ["waiting", "running"]
    assert drawn.get_size_inches().tolist() == [10.0, 5.4]
    cpus = timeline(schedule_of(Cluster((Node("a", cpus=4),)), [(0.0, 9.0, 0, 0, 0.0)]))
    assert cpus.get_size_inches().tolist() == [10.0, 2.8]


def test_quantiles_of_each_priority_are_boxes(schedule_of) -> None:
    runs = [(1000.0 * at, 1000.0 * at + 10 * (at // 2 + 1), 0, 1, 1.0) for at in range(10)]  # 10 to 50 s in each group
    drawn = by_priority(schedule_of(EIGHT, runs))
    (axes,) = drawn.axes
    whiskers = [line(curve) for curve in axes.get_lines() if len(curve.get_xdata()) == 2]
    heights = sorted({round(value, 9) for _, y in whiskers for value in y})
    assert heights == [12, 20, 30, 40, 48]
    means = [line(curve) for curve in axes.get_lines() if curve.get_marker() == "D"]
    assert means == [([1], [30]), ([2], [30])]
    assert axes.get_ylim() == pytest.approx((10, 57.6))
    assert drawn.get_size_inches().tolist() == [5.0, 4.2]
    twelve = schedule_of(EIGHT, runs)
    twelve.jobs = [job._replace(priority=float(place)) for place, job in enumerate(twelve.jobs)]
    assert by_priority(twelve).get_size_inches()[0] == pytest.approx(2.2 + 0.75 * 10)
    nobody = by_priority(schedule_of(EIGHT, runs, Kind.FAILED)).axes[0]
    assert [text.get_text() for text in nobody.texts] == ["no job completed"]


class Line(SimpleNamespace):
    policy: str
    seed: int
    metrics: dict[str, float | None]


def test_a_comparison_has_a_bar_an_interval_and_words_for_each_policy() -> None:
    values = {"fifo": [1.0] * 5, "sjf": [0.8, 0.8, 0.8, 0.8, 0.7], "slow": [1.2, 1.4, 1.3, 1.3, 1.35]}
    lines = [
        Line(policy=policy, seed=seed, metrics={"jct_s.mean": 100 * ratio})
        for policy, row in values.items()
        for seed, ratio in enumerate(row)
    ]
    ranked = standings(lines, reference="fifo")
    drawn = comparison(ranked)
    (axes,) = drawn.axes
    assert [standing.policy for standing in ranked] == ["sjf", "fifo", "slow"]
    percent = [
        [100 * (value - 1) for value in (standing.pair.ratio, standing.pair.low, standing.pair.high)]
        for standing in ranked
    ]
    assert [(patch.get_x(), patch.get_width(), patch.get_y()) for patch in axes.patches] == [
        (0, pytest.approx(value), pytest.approx(row - 0.31)) for row, (value, _, _) in enumerate(percent)
    ]
    intervals = [line(curve) for curve in axes.get_lines()]
    assert intervals[:2] == [(pytest.approx(percent[row][1:]), [row, row]) for row in (0, 2)]
    assert intervals[2:] == [([0, 0], [0, 1])]
    assert axes.get_ylim() == (2.6, -0.6)
    assert axes.get_xlim()[1] > percent[2][2]
    assert drawn.get_size_inches().tolist() == pytest.approx([8.4, 1.9 + 0.34 * 3])
    shown = [f"{value:+.1f}".replace("-", "\N{MINUS SIGN}") for value in percent[2]]
    assert axes.texts[2].get_text() == f"{shown[0]}  [{shown[1]}, {shown[2]}]"
    assert [text.xyann for text in axes.texts] == [(1.01, row) for row in range(3)]
    assert [text.get_color() for text in axes.texts] == [INK, GREY, INK]
    assert axes.get_title(loc="left") == "Mean JCT against fifo"
    assert drawn.get_supxlabel().startswith("5 seeds    bars:")
    better = comparison(ranked[:2]).axes[0]
    assert better.get_xlim()[1] >= 0
    one = [replace(standing, sample=Sample.TRACE) for standing in ranked]
    trace = comparison(one)
    assert trace.get_supxlabel() == "one trace: ratios without intervals"
    assert trace.axes[0].texts[2].get_text() == shown[0]
    assert len(trace.axes[0].get_lines()) == 1
    assert ranked[0].verdict is Verdict.BETTER


def test_learning_curves_have_a_panel_per_measure_and_the_mean_of_the_runs() -> None:
    first = [{"samples": 10.0 * at, "ratio": 2.0 - 0.1 * at, "reward": None} for at in range(11)]
    second = [{"samples": 10.0 * at, "ratio": 1.0, "reward": 5.0} for at in range(2, 13)]
    for rows in (first, second):
        for row in rows:
            row |= dict.fromkeys(("entropy", "kl", "explained_variance", "samples_per_s"))
    drawn = learning_curves({"a": first, "b": second})
    ratio, reward = drawn.axes
    one, other, mean, target = ratio.get_lines()
    assert line(one) == ([10.0 * at for at in range(11)], pytest.approx([2.0 - 0.1 * at for at in range(11)]))
    assert [curve.get_color() for curve in (one, other, mean)] == [BLUE, ORANGE, INK]
    x, y = line(mean)
    assert (x[0], x[-1], len(x)) == (20, 100, 200)  # both runs have samples from 20 to 100
    assert (y[0], y[-1]) == (pytest.approx((1.8 + 1) / 2), 1)
    assert line(target)[1] == [1, 1]
    band = ratio.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1, pytest.approx(1.8))
    everything = [2.0 - 0.1 * at for at in range(11)] + [1.0] * 11
    high = float(np.quantile(everything, 0.85))
    assert ratio.get_ylim() == pytest.approx((1 - 0.08 * (high - 1), high + 0.08 * (high - 1)))
    assert len(reward.get_lines()) == 1  # one run has no mean
    assert [curve.get_linewidth() for curve in (one, *reward.get_lines())] == [0.9, 1.6]
    assert drawn.get_size_inches().tolist() == [8.4, 3.0]
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["a", "b"]
    assert learning_curves({"a": first}).legends == []
    assert learning_curves({}).get_size_inches().tolist() == [4.2, 3.0]
    four = [row | {"entropy": 1.0, "kl": 0.1, "reward": 1.0} for row in first]
    assert learning_curves({"a": four}).get_size_inches().tolist() == pytest.approx([12.6, 6.0])


def test_a_workload_has_six_panels() -> None:
    tally = SimpleNamespace(
        **{"tasks": [1, 4, 4], "depths": [1, 2, 3], "widths": [1, 2, 2], "work": [0.0, 10.0, 30.0, 10.0]},
        **{"instances": [1, 1, 5], "by_gpus": Counter({float(at): at + 1 for at in range(12)})},
        **{"by_hour": Counter({0: 2, 23: 1}), "arrivals": [0.0, 600.0, 86400.0 * 6]},
    )
    drawn = workload(tally, "mine")  # type: ignore[arg-type]
    shape, work, instances, gpus, hours, arrivals = drawn.axes
    assert shape.get_title(loc="left") == "mine: 3 jobs"
    assert [curve.get_label() for curve in shape.get_lines()] == ["tasks", "depth", "width"]
    assert line(shape.get_lines()[0]) == ([1, 1, 4], pytest.approx([0, 1 / 3, 1]))
    assert line(work.get_lines()[0]) == ([0.001, 0.001, 10, 30], pytest.approx([0, 0.25, 0.75, 1]))
    assert line(instances.get_lines()[0]) == ([1, 1, 5], pytest.approx([0, 2 / 3, 1]))
    assert (work.get_title(loc="left"), instances.get_title(loc="left")) == ("Work", "Instances")
    assert (shape.get_xscale(), instances.get_xscale(), work.get_ylim()) == ("log", "log", (0, 1.02))
    # the nine most frequent numbers of GPUs, and the rest: 1 + 2 + 3
    assert [patch.get_height() for patch in gpus.patches] == [*range(4, 13), 6]
    assert [label.get_text() for label in gpus.get_xticklabels()] == [*map(str, range(3, 12)), "others"]
    assert gpus.get_xlim() == (-0.6, 9.6)
    assert [patch.get_height() for patch in hours.patches] == [2, *[0] * 22, 1]
    assert hours.get_xticks().tolist() == list(range(0, 24, 3))
    (stairs,) = arrivals.patches
    values, edges, _ = stairs.get_data()
    assert (values.tolist(), edges[0], edges[-1]) == ([2, *[0] * 58, 1], 0, 6)
    assert arrivals.get_ylabel() == "jobs per 0.1 d"
    ten = tally.by_gpus
    del ten[0.0], ten[1.0]
    assert len(workload(tally, "").axes[3].patches) == 10  # type: ignore[arg-type]
    tally.arrivals, tally.work, tally.by_gpus = [5.0], [], Counter({1.0: 1})
    _, work, _, gpus, _, arrivals = workload(tally, "").axes  # type: ignore[arg-type]
    assert [text.get_text() for text in (*work.texts, *arrivals.texts)] == ["no tasks", "all jobs arrive at once"]
    assert gpus.get_xlim() == (-0.6, 3.6)


def test_axes_are_light() -> None:
    axes = figure(4, 3).add_subplot()
    dress(axes, "x", "y")
    headline(axes, "left", "right")
    assert [axes.spines[side].get_visible() for side in ("top", "right", "left", "bottom")] == [
        False,
        False,
        True,
        True,
    ]
    assert [to_hex(axes.spines[side].get_edgecolor()) for side in ("left", "bottom")] == [LINE, LINE]
    assert [gridline.get_visible() for gridline in (axes.xaxis.get_gridlines()[0], axes.yaxis.get_gridlines()[0])] == [
        False,
        True,
    ]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title(loc="right")) == ("x", "y", "right")
    bare = figure(4, 3).add_subplot()
    dress(bare, grid="")
    assert not bare.yaxis.get_gridlines()[0].get_visible()
    nothing(bare, "why")
    assert bare.texts[0].get_position() == (0.5, 0.5)
    assert (bare.get_xticks().tolist(), bare.get_yticks().tolist()) == ([], [])


@pytest.mark.parametrize(
    ("low", "high", "most", "limits", "ticks"),
    [
        (1.0, 2999.0, 8, (1 / 1.2, 3598.8), ["1 s", "10 s", "1 min", "10 min"]),  # 4,319 times: no ticks between
        (1.0, 2000.0, 8, (1 / 1.2, 2400), ["1 s", "3 s", "10 s", "30 s", "1 min", "3 min", "10 min", "30 min"]),
        (1.0, 2000.0, 5, (1 / 1.2, 2400), ["1 s", "10 s", "1 min", "10 min"]),
        (1.0, 2000.0, 3, (1 / 1.2, 2400), ["1 s", "30 s", "10 min"]),
        (4.0, 5.0, 8, (3, 10), ["3 s", "10 s"]),
        (0.0005, 0.0006, 8, (0.0005 / 1.2, 0.001), ["1 ms"]),  # no tick below a millisecond
    ],
)
def test_a_logarithmic_axis_has_up_to_so_many_ticks(
    low: float, high: float, most: int, limits: tuple[float, float], ticks: list[str]
) -> None:
    axes = figure(4, 3).add_subplot()
    log_seconds(axes, "y", low, high, most)
    assert axes.get_ylim() == pytest.approx(limits)
    assert [label.get_text() for label in axes.get_yticklabels()] == ticks
    assert (axes.get_yscale(), axes.get_xscale()) == ("log", "linear")


def test_every_tick_of_a_time_axis_is_where_its_label_says() -> None:
    seconds = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400, "a": 365 * 86400}
    for low, high in ((0.001, 4e8), (0.002, 0.1), (1.0, 3000.0), (1000.0, 2e6)):
        axes = figure(4, 3).add_subplot()
        log_seconds(axes, "x", low, high, most=20)
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
            number, unit = label.get_text().split()
            assert place == pytest.approx(float(number) * seconds[unit], rel=1e-9)
    for span_s, unit, length in ((3, "s", 1), (180, "min", 60), (10_800, "h", 3600), (259_200, "d", 86400)):
        assert unit_of(span_s) == (length, unit)
        assert unit_of(span_s - 1e-6).seconds < length or unit == "s"


def test_polygons_are_the_only_collection_of_a_plain_gantt(schedule_of) -> None:
    assert [type(collection) for collection in gantt(schedule_of(EIGHT, RUNS)).axes[0].collections] == [PolyCollection]
