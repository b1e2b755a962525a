"""The timeline of GPUs held and of jobs that run and wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from report.plots.drawn import line
from support.drawn_schedules import EIGHT, RUNS

from dagsim.model import Cluster, Kind, Node, Record
from dagsim.report.plots import timeline


def test_the_timeline_stacks_types_under_what_is_up(schedule_of) -> None:
    up = [Record(Kind.DOWN, 200.0, node=0), Record(Kind.UP, 300.0, node=0)]
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
