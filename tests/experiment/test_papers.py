"""``dagsim paper``: published figures, ours, and their difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagsim.cli import app
from dagsim.experiment.papers import PAPERS, Paper, PaperFigure


def run(*args: str, code: int = 0) -> str:
    ended = CliRunner().invoke(app, ["paper", *args])
    assert ended.exit_code == code, ended.output
    return " ".join(ended.output.split())


def test_a_figure_holds_within_its_published_digits() -> None:
    assert PaperFigure("x", 1.25, 1.2549, 0.005).holds
    assert not PaperFigure("x", 1.25, 1.2551, 0.005).holds
    assert PaperFigure("x", 2.0, 3.0, 0.0).difference == 1.0


def test_a_missing_file_is_an_error_that_says_where_to_get_it(tmp_path: Path) -> None:
    assert "HPC2N-2002-2.2-cln.swf.gz is not below it; dagsim trace fetch hpc2n" in run(
        "rlscheduler", "--data", str(tmp_path), code=2
    )
    assert "no such folder" in run("stg", "--data", str(tmp_path / "none"), code=2)
    assert "did you mean 'stg'" in run("sgt", code=2)


def test_a_figure_that_differs_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "numbers.txt").write_text("3.5 2.0", encoding="utf-8")

    def figures(files: dict[str, Path]):
        ours = map(float, files["numbers.txt"].read_text(encoding="utf-8").split())
        for name, published, here in zip(("one", "two"), (3.5, 2.25), ours, strict=True):
            yield PaperFigure(name, published, here, 0.005)

    monkeypatch.setitem(PAPERS, "mine", Paper("Mine", ("numbers.txt",), "ask me", figures))
    shown = run("mine", "--data", str(tmp_path), code=1)
    assert "two 2.25 2 -0.25 differs" in shown
    assert "1 of 2 figures are equal to the published digits" in shown
    facts = json.loads(run("mine", "--data", str(tmp_path), "--json", code=1))
    assert [figure["holds"] for figure in facts["figures"]] == [True, False]


@pytest.mark.data
def test_the_optima_of_the_standard_task_graphs_are_reached_as_published(data: Path) -> None:
    assert "12 of 12 figures are equal" in run("stg", "--data", str(data / "traces"))
