"""The picture of a workload."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from report.plots.drawn import line

from dagsim.report.plots.workload import workload


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
