"""Learning curves."""

from __future__ import annotations

import numpy as np
import pytest
from report.plots.drawn import line

from dagsim.report.plots.curves import learning_curves
from dagsim.report.plots.style import BLUE, INK, ORANGE


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
