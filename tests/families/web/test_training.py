from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dagsim.config.schema import Config
from dagsim.errors import InputError, RunFolderError
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.store import Store
from dagsim.experiment.training_log import COLUMNS
from dagsim.families.web.charts import Packer, learning
from dagsim.families.web.document import page
from dagsim.families.web.run_sections import training_sentences

HEADS = "policy,mean,ratio,ratio_low,ratio_high,wins,n,verdict"


def training(root: Path, ratios: list[float]) -> Store:
    folder = RunStore.create(root, "train", Config(), argv=["dagsim", "train"])
    lines = [",".join(COLUMNS)]
    for number, ratio in enumerate(ratios, 1):
        values = {"iteration": number, "samples": 100 * number, "ratio": ratio, "reward": -float(number)}
        lines.append(",".join(str(values.get(name, "")) for name in COLUMNS))
    (folder.path / "progress.csv").write_text("\n".join(lines) + "\n")
    return folder


class Kept(Packer):
    """A packer that lets a test look at what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, np.ndarray] = {}

    def add(self, values, dtype):
        place = super().add(values, dtype)
        self.kept[place] = np.asarray(values)
        return place


def test_a_mean_in_its_band_covers_what_all_trainings_have_seen() -> None:
    def rows(samples: list[float], slope: float) -> list[dict[str, float | None]]:
        return [dict.fromkeys(COLUMNS, None) | {"samples": x, "ratio": slope * x} for x in samples]

    packer = Kept()
    (chart,) = learning({"a": rows([100, 200, 300], 0.01), "b": rows([150, 250], 0.03)}, packer)
    x = packer.kept[chart["x"]]
    (name, *band), (first, a), (second, b) = chart["series"]
    assert (name, first, second) == ("mean", "a", "b")
    seen = (x >= 150) & (x <= 250)
    assert [x[0], x[-1]] == [100, 300]
    for at, slope in zip(band, (0.02, 0.01, 0.03), strict=True):
        assert packer.kept[at][seen] == pytest.approx(slope * x[seen])
        assert np.isnan(packer.kept[at][~seen]).all()
    assert packer.kept[a] == pytest.approx(0.01 * x)
    assert packer.kept[b][seen] == pytest.approx(0.03 * x[seen])


def test_one_training_has_its_own_curve_alone() -> None:
    rows = [dict.fromkeys(COLUMNS, None) | {"samples": x, "reward": -x} for x in (1.0, 2.0)]
    packer = Kept()
    (chart,) = learning({"a": rows}, packer)
    assert [(name, packer.kept[at].tolist()) for name, at in chart["series"]] == [("a", [-1.0, -2.0])]


def test_the_best_validation_score_is_told_with_its_place() -> None:
    rows = [dict.fromkeys(COLUMNS, None) | {"samples": x, "ratio": y} for x, y in ((10, 1.2), (20, 0.9), (30, 1.0))]
    (sentence,) = training_sentences({"run": rows})
    assert sentence.startswith(
        "run: best completion time on the validation seeds 0.900 times that of the reference, after 20 of 30"
    )


def test_one_iteration_is_a_point_and_the_page_says_that_it_has_no_curve(tmp_path: Path) -> None:
    rows = [dict.fromkeys(COLUMNS, None) | {"samples": 10.0, "ratio": 1.2}]
    packer = Kept()
    (chart,) = learning({"a": rows}, packer)
    ((_, at),) = chart["series"]
    assert (packer.kept[chart["x"]].tolist(), packer.kept[at].tolist()) == ([10.0], pytest.approx([1.2]))
    assert training_sentences({"a": rows})[1:] == ["a: one iteration has no curve, so the charts show one point."]
    assert len(training_sentences({"a": rows * 2})) == 1


@pytest.mark.parametrize("first", [0.0, None])
def test_an_agent_may_be_best_before_its_first_sample(first: float | None) -> None:
    rows = [dict.fromkeys(COLUMNS, None) | {"samples": x, "ratio": y} for x, y in ((first, 0.9), (20, 1.2))]
    assert "0.900 times that of the reference, after 0 of 20 samples" in training_sentences({"run": rows})[0]
    unseen = [dict.fromkeys(COLUMNS, None) | {"samples": first}]
    assert training_sentences({"run": unseen}) == ["run: not validated yet; 0 samples."]


def test_a_page_of_trainings_shows_their_report(tmp_path: Path) -> None:
    folder = training(tmp_path, [1.1, 0.95])
    rows = ["heft,1039.3,1.0,,,0,200,reference", "ppo<b>,980.1,0.943,0.921,0.966,180,200,better"]
    (folder.path / "report.csv").write_text("\n".join([HEADS, *rows]) + "\n")
    text = page([folder])
    assert "0.950 times that of the reference" in text
    assert "ppo&lt;b&gt;" in text
    assert "0.921 .. 0.966" in text


def test_trainings_and_other_runs_are_not_mixed(tmp_path: Path) -> None:
    other = RunStore.create(tmp_path, "eval", Config(), argv=["dagsim"])
    with pytest.raises(InputError, match="cannot share a page"):
        page([training(tmp_path, [1.0]), other])


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    folder = training(tmp_path, [1.0])
    (folder.path / "report.csv").write_text("policy,mean\nheft,1\n")
    with pytest.raises(RunFolderError, match=r"report\.csv"):
        page([folder])
