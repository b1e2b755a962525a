"""``dagsim paper``: published figures, ours, and their difference."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.command_line import invoke

from dagsim.families.benchmark import papers, rltune
from dagsim.families.benchmark.papers import PAPERS, Paper, PaperFigure

_PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster"


def run(*args: str, code: int = 0) -> str:
    ended = invoke("paper", *args)
    assert ended.exit_code == code, ended.output
    return " ".join(ended.output.split())


def test_a_figure_holds_within_its_published_digits() -> None:
    assert PaperFigure("x", 1.25, 1.2549, 0.005).holds
    assert not PaperFigure("x", 1.25, 1.2551, 0.005).holds
    assert PaperFigure("x", 2.0, 3.0, 0.0).difference == 1.0


def test_a_missing_file_is_an_error_that_says_where_to_get_it(tmp_path: Path) -> None:
    assert "does not contain lublin_256.swf.gz; where to get it: HPC2N: dagsim trace fetch hpc2n" in run(
        "rlscheduler", "--data", str(tmp_path), code=2
    )
    assert "does not contain golden/elastic/gavel; where to get it: results of https://github.com" in run(
        "gavel", "--data", str(tmp_path), code=2
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
    assert "two 2.25 2 -0.25 0.005 differs" in shown
    assert "1 of 2 values differ by no more than is allowed" in shown
    facts = json.loads(run("mine", "--data", str(tmp_path), "--json", code=1))
    assert [figure["holds"] for figure in facts["figures"]] == [True, False]


def test_the_setting_of_rltune_has_two_kinds_of_nodes(tmp_path: Path) -> None:
    lines = [f"2017-10-{1 + n // 24:02} {n % 24:02}:00:00,{600 * (1 + n % 5)},{2 ** (n % 4)},0,vc" for n in range(300)]
    (tmp_path / rltune.FILE).write_bytes(gzip.compress("\n".join([_PHILLY, *lines]).encode()))
    cluster = rltune.cluster()
    assert [sum(int(node.gpus) for node in cluster.nodes if node.gpus == gpus) for gpus in (2, 8)] == [32, 160]
    assert len(set(cluster.gpu_types)) == 2
    (sequence,) = rltune.sequences(tmp_path / rltune.FILE, seed=1, count=1)
    assert len(sequence) == 256
    assert (sequence[0].arrival_s, sequence[-1].arrival_s) == (0.0, 255 * 3600.0)
    saved = rltune.gains(sequence, ("committed", "sjf"), "exact")
    assert saved["committed"] == (0.0, 0.0, 0.0)
    assert saved["sjf"].wait >= 0.0


@pytest.mark.data
def test_the_optima_of_the_standard_task_graphs_are_reached_as_published(data: Path) -> None:
    assert "12 of 12 values differ by no more" in run("stg", "--data", str(data / "traces"))


def test_files_with_figures_of_their_own_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.txt").write_text("1", encoding="utf-8")

    def figures(files: dict[str, Path]):
        for name, path in files.items():
            yield PaperFigure(name, 1.0, float(path.read_text(encoding="utf-8")), 0.0)

    monkeypatch.setitem(PAPERS, "mine", Paper("Mine", ("one.txt", "two.txt"), "ask me", figures, whole=False))
    shown = run("mine", "--data", str(tmp_path))
    assert "1 of 1 values differ by no more than is allowed" in shown
    assert "two.txt. ask me" in shown
    assert json.loads(run("mine", "--data", str(tmp_path), "--json"))["missing"] == ["two.txt"]


def test_the_tables_of_rlscheduler_have_eighty_figures() -> None:
    logs = papers._LOGS.values()
    figures = [value for log in logs for rows in (log.slowdowns, log.utilizations) for row in rows for value in row]
    assert len(figures) == 80


def test_a_paper_of_the_scripts_needs_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "golden/elastic/sia").mkdir(parents=True)
    monkeypatch.setattr("dagsim.__file__", str(tmp_path / "dagsim" / "__init__.py"))
    assert "run the command in a checkout of dagsim" in run("sia", "--data", str(tmp_path), code=2)


def test_an_error_of_the_scripts_is_an_error_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "golden/elastic/sia").mkdir(parents=True)
    assert "ilp_instances.json.gz: 0 files with configurations beside it" in run("sia", "--data", str(tmp_path), code=2)


@pytest.mark.data
def test_a_paper_of_the_scripts_is_repeated(data: Path) -> None:
    assert "1 of 1 values differ by no more than is allowed" in run("sia", "--data", str(data))


@pytest.mark.data
def test_a_sequence_of_rlscheduler_has_the_slowdown_and_the_utilisation_of_its_simulator(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = json.loads((data / "golden/swf/rlscheduler_lublin1.json").read_text(encoding="utf-8"))["Lublin-1"]
    starts = papers.sequence_starts
    monkeypatch.setattr(papers, "_SCORES", {"SJF": "sjf"})
    monkeypatch.setattr(papers, "sequence_starts", lambda jobs: starts(jobs)[:1])
    log = data / "traces/swf/lublin_256.swf.gz"
    for backfilling, means in papers.sequence_means(papers.opened(log, 256, "rlscheduler"), log, 256).items():
        expected = [golden[metric][backfilling]["per_sequence"]["SJF"][0] for metric in ("bsld", "util")]
        assert means["SJF"] == pytest.approx(tuple(expected), rel=1e-9)
