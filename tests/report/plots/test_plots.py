from __future__ import annotations

import itertools
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from dagsim.metrics.standings import standings
from dagsim.model import Cluster, Kind, Node
from dagsim.report.plots import by_priority, comparison, draw_all, gantt, jct_cdf, timeline
from dagsim.report.plots.gantt import binned
from dagsim.report.plots.style import BLUE, LINE, ORANGE, figure, log_seconds, unit_of

EIGHT = Cluster.of({"A100-40": 4, "T4": 4}, per_node=4)
RUNS = [(0.0, 100.0, 0, 0b0011, 2.0), (10.0, 40.0, 0, 0b1000, 1.0), (50.0, 400.0, 1, 0b0101, 2.0)]


@pytest.fixture
def schedule(schedule_of):
    return schedule_of(EIGHT, RUNS)


def texts(drawn):
    drawn.canvas.draw()
    return [text.get_text() for axes in drawn.axes for text in axes.texts]


def test_the_gantt_is_one_collection_of_boxes(schedule):
    axes = gantt(schedule).axes[0]
    (boxes,) = (drawn for drawn in axes.collections if isinstance(drawn, PolyCollection))
    assert len(boxes.get_paths()) == 4  # GPUs 0 and 2 of the last run are not neighbours
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a100-40-0", "t4-0"]
    assert axes.get_xlabel() == "time [min]"


def test_each_run_is_labelled_at_most_once_and_each_gpu_is_numbered(schedule):
    assert sorted(texts(gantt(schedule))) == [*"00112233", "job0", "job1", "job2"]


def test_the_gantt_tells_what_stopped_runs_and_nodes(schedule_of):
    down = [(Kind.DOWN, 120.0, -1, -1, -1, 0, 0, 0, 0.0)]
    drawn = gantt(schedule_of(EIGHT, RUNS, Kind.FAILED, down))
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["node down", "failed"]


def test_a_large_schedule_is_shaded_by_node(schedule_of):
    cluster = Cluster.of({"T4": 1600})
    runs = [(0.0, 100.0, 7, 0b1111, 4.0), (0.0, 50.0, 8, 0b11111111, 8.0)]
    (image,) = gantt(schedule_of(cluster, runs)).axes[0].images
    share = image.get_array()
    assert share.shape[0] == 200
    assert share[7].min() == share[7].max() == 0.5
    assert share[8].mean() == pytest.approx(0.5)
    assert share[[0, 199]].max() == 0.0


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


def test_the_cdf_ends_at_the_fraction_completed(schedule_of):
    done, open_ = schedule_of(EIGHT, RUNS), schedule_of(EIGHT, RUNS)
    open_.log = type(open_.log).of(done.log.rows()[:-1])  # the last job does not complete
    first, second = jct_cdf({"fifo": done, "sjf": open_}).axes[0].get_lines()
    assert first.get_ydata()[-1] == 1.0
    assert second.get_ydata()[-1] == pytest.approx(2 / 3)
    assert (first.get_label(), second.get_label()) == ("fifo: mean 160 s", "sjf: 1 of 3 unfinished")


def test_the_timeline_shows_every_step_of_a_small_schedule(schedule):
    above, below = timeline(schedule).axes
    assert above.get_title(loc="left") == "GPUs held: 29.1% of 8"  # (200 + 30 + 700) / (8 x 400)
    running = below.get_lines()[0].get_ydata()
    assert running.tolist() == [1, 2, 1, 2, 1, 1]


def test_the_timeline_of_a_long_schedule_is_averaged(schedule_of):
    runs = [(float(second), second + 0.5, 0, 0b1, 1.0) for second in range(4000)]
    above, below = timeline(schedule_of(EIGHT, runs)).axes
    assert above.get_title(loc="right").startswith("averages over")
    assert below.get_lines()[0].get_ydata() == pytest.approx(0.5, abs=0.1)


def test_a_cluster_without_gpus_has_no_panel_of_gpus(schedule_of):
    cluster = Cluster((Node("a", cpus=4),))
    assert len(timeline(schedule_of(cluster, [(0.0, 9.0, 0, 0, 0.0)])).axes) == 1


def test_boxes_are_in_the_order_of_priority(schedule):
    labels = [label.get_text() for label in by_priority(schedule).axes[0].get_xticklabels()]
    assert labels == ["0\nn = 2", "1\nn = 1"]


def test_many_priorities_are_gathered_into_ranges(schedule_of):
    schedule = schedule_of(EIGHT, [(float(second), second + 1.0, 0, 1, 1.0) for second in range(60)])
    schedule.jobs = [job._replace(priority=float(place)) for place, job in enumerate(schedule.jobs)]
    labels = [label.get_text() for label in by_priority(schedule).axes[0].get_xticklabels()]
    assert len(labels) == 12
    assert labels[0] == "0 to 4.92\nn = 5"


class Line(NamedTuple):
    policy: str
    seed: int
    metrics: dict[str, float | None]


def compared():
    factors = {
        "random": [1.2, 1.4, 1.3, 1.3, 1.35],
        "fifo": [1.0] * 5,
        "sjf": [0.8] * 4 + [0.7],
        "srtf": [0.9, 1.1, 0.9, 1.1, 0.95],
        "heft": [None, 1.0, 1.0, 1.0, 1.0],
    }
    lines = [
        Line(policy, seed, {"jct_s.mean": factor and factor * (100.0 + seed)})
        for policy, row in factors.items()
        for seed, factor in enumerate(row)
    ]
    return standings(lines, reference="fifo")


def test_schedulers_are_compared_best_first():
    ranked = compared()
    drawn = comparison(ranked, workload="steady")
    axes = drawn.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["sjf", "srtf", "fifo", "random", "heft"]
    ratios = [100 * (standing.pair.ratio - 1) for standing in ranked[:4]]
    assert [patch.get_width() for patch in axes.patches] == pytest.approx(ratios)
    assert [to_hex(patch.get_facecolor()).upper() for patch in axes.patches] == [
        BLUE,
        LINE.upper(),
        LINE.upper(),
        ORANGE,
    ]
    assert texts(drawn)[0].startswith("\N{MINUS SIGN}22.")
    assert texts(drawn)[2] == "reference"
    assert texts(drawn)[4] == "not known: unfinished jobs"


def test_a_comparison_says_workload_n_and_method():
    drawn = comparison(compared(), workload="steady")
    assert drawn.axes[0].get_title(loc="left") == "Mean JCT against fifo on steady"
    note = drawn.get_supxlabel()
    assert "5 seeds" in note
    assert "geometric mean" in note


def test_all_plots_are_drawn_to_equal_bytes(schedule, tmp_path):
    first, second = draw_all(schedule, tmp_path / "a"), draw_all(schedule, tmp_path / "b" / "c")
    assert [path.name for path in first] == ["gantt.png", "jct_cdf.png", "timeline.png", "priorities.png"]
    for path, again in zip(first, second, strict=True):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("runs", [[], [(5.0, 5.0, 0, 1, 1.0)], [(5.0, 5.0, 0, 1, 1.0), (5.0, 5.1, 0, 2, 1.0)]])
def test_schedules_with_little_in_them_are_drawn(schedule_of, tmp_path, runs):
    assert len(draw_all(schedule_of(EIGHT, runs), tmp_path)) >= 3


@pytest.mark.parametrize(("kind", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_plots_come_as_vectors_and_with_a_title(schedule, tmp_path, kind, start):
    title = "sjf, seed 3, steady: run 1 of 20"
    first = draw_all(schedule, tmp_path / "a", "sjf", title, kind)
    second = draw_all(schedule, tmp_path / "b", "sjf", title, kind)
    for path, again in zip(first, second, strict=True):
        assert path.read_bytes().startswith(start)
        assert path.read_bytes() == again.read_bytes()
    if kind == "svg":
        assert all(title in path.read_text() for path in first)


def test_one_priority_needs_no_plot(schedule_of, tmp_path):
    schedule = schedule_of(EIGHT, RUNS)
    schedule.jobs = [job._replace(priority=1.0) for job in schedule.jobs]
    assert [path.stem for path in draw_all(schedule, tmp_path)] == ["gantt", "jct_cdf", "timeline"]


def test_the_unit_of_time_follows_the_span():
    assert [unit_of(span).sign for span in (0.0, 100.0, 1e3, 1e5, 1e6)] == ["s", "s", "min", "h", "d"]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (20.0, 2000.0, ["30 s", "1 min", "3 min", "10 min", "30 min"]),
        (1.0, 1e6, ["1 s", "10 s", "1 min", "10 min", "1 h", "10 h", "3 d"]),
        (4.0, 5.0, ["3 s", "10 s"]),
    ],
)
def test_logarithmic_time_has_readable_ticks(low, high, ticks):
    axes = figure(4, 3).add_subplot()
    log_seconds(axes, "x", low, high)
    assert [label.get_text() for label in axes.get_xticklabels()] == ticks


def test_matplotlib_is_loaded_only_to_draw():
    script = "import dagsim.report.plots, sys; print('matplotlib' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_pyplot_is_never_loaded(schedule, tmp_path):
    script = (
        "from pathlib import Path; import sys; from dagsim.report.plots import draw_all;"
        "from dagsim.model.log import Schedule; from dagsim.model import Cluster;"
        f"draw_all(Schedule(Cluster.of({{'T4': 4}})), Path({str(tmp_path)!r}));"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
