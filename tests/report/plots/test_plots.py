"""All plots of a schedule at once: their files, and what is loaded for them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.drawn_schedules import EIGHT, RUNS

from dagsim.report.plots import draw_all


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
