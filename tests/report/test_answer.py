"""Pages of ``whatif``, ``plan`` and ``replay`` answer the question that was asked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.command_line import fine, invoke

from dagsim.errors import RunFolderError
from dagsim.report.answer import read_answer
from dagsim.testing.known_waits import first_come_waits

pytestmark = pytest.mark.family("capacity", "web")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 3 GPUs at a load of .8, whose jobs waited as under first come, first served."""
    folder, rng = tmp_path_factory.mktemp("site"), np.random.default_rng(3)
    arrival_s, run_s = np.cumsum(rng.exponential(125.0, 600)), rng.exponential(300.0, 600)
    start_s = arrival_s + first_come_waits(arrival_s, run_s, 3)
    columns = zip(arrival_s.tolist(), start_s.tolist(), run_s.tolist(), strict=True)
    rows = [
        f"{n},{at!r},{start!r},1,{run!r},{'<ann>' if n % 2 else 'bob'}" for n, (at, start, run) in enumerate(columns)
    ]
    (folder / "log.csv").write_text("\n".join(["id,arrival_s,start_s,gpus,duration_s,tenant", *rows]) + "\n")
    (folder / "c.yaml").write_text("cluster: {groups: [{name: t, gpu: T4, gpus: 1, count: 3}]}\n", encoding="utf-8")
    return folder


def asked(site: Path, command: str, *options: str, code: int = 0) -> tuple[str, Path]:
    """The output of a question, and its run folder."""
    common = [
        command,
        "--trace",
        str(site / "log.csv"),
        "--cluster",
        str(site / "c.yaml"),
        "--out",
        str(site / command),
    ]
    result = invoke(*common, *options)
    assert result.exit_code == code, result.output
    return result.output, next(iter((site / command).glob("*/report.html"))).parent if command != "replay" else site


def header(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return re.sub(r"<[^>]+>", " ", text[text.index("<header>") : text.index("</header>")])


def test_the_page_of_a_plan_shows_size_certainty_cost_and_today(site: Path) -> None:
    output, folder = asked(site, "plan", "--policy", "fifo", "--target", "wait_s.mean<60", "--price", "T4=2")
    text, answer = header(folder / "report.html"), read_answer(folder)
    assert answer is not None
    size = int(answer.grid.rows[[row[-1] for row in answer.grid.rows].index("best")][1])
    for sentence in (
        f"meets wait_s.mean &lt; 60: {size} nodes, {size} GPUs",
        "certain: in 95% of such periods wait_s.mean lies between",
        f"It costs {size * 2 * 730:,} a month. Today&#x27;s 3 GPUs cost 4,380 ({(size - 3) * 1460:+,}).",
        "Today&#x27;s 3 GPUs: wait_s.mean",
        "they do not meet it",
        "The simulation reproduces the log",
    ):
        assert sentence in text
    assert all(sentence in output.replace("\n", " ") for sentence in answer.sentences[:1])
    assert "lowest mean JCT" not in text
    drawn = answer.charts[0]
    tried = [row for row in answer.grid.rows if row[-1] in ("best", "yes", "no")]
    assert [f"{mark.across / 1460:,.0f}" for mark in drawn.marks] == [row[1] for row in tried]
    assert [mark.tone for mark in drawn.marks].count("chosen") == 1
    assert {mark.tone == "good" for mark in drawn.marks if mark.value < 60 and mark.tone != "chosen"} <= {True}
    assert drawn.line == 60
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<circle") == len(drawn.marks)


def test_the_page_of_a_whatif_shows_every_alternative_with_verdict_and_cost(site: Path) -> None:
    common = ["--policy", "fifo", "--add", "3xT4", "--metric", "wait_s.mean", "--price", "T4=1"]
    _, folder = asked(site, "whatif", *common)
    assert re.search(
        r"\+3xT4 under fifo: log too short; wait_s.mean [\d.]+ times .*; 4,380 a month \(\+2,190\)",
        header(folder / "report.html"),
    )
    answer = read_answer(folder)
    assert answer is not None
    waits = {mark.label: mark.value for mark in answer.charts[-1].marks}
    assert [f"{value:.4g}" for value in waits.values()] == [row[2] for row in answer.grid.rows]
    assert list(waits) == ["the log, as it was", "today, fifo", "+3xT4, fifo"]
    (folder / "answer.json").write_text(json.dumps({"title": "no sentences"}), encoding="utf-8")
    with pytest.raises(RunFolderError, match="not an answer"):
        read_answer(folder)


def test_the_longest_waits_show_the_causes_that_why_finds(site: Path) -> None:
    rows = [f"{n},{n},1,{1 if n else 4},100" for n in range(3)]  # job 1 waits for CPUs although three GPUs are free
    (site / "w.csv").write_text("\n".join(["id,arrival_s,gpus,cpus,duration_s", *rows]) + "\n", encoding="utf-8")
    (site / "w.yaml").write_text("cluster: {groups: [{name: t, gpu: T4, gpus: 4, cpus: 4}]}\n", encoding="utf-8")
    common = ["replay", "--trace", str(site / "w.csv"), "--cluster", str(site / "w.yaml"), "--algo", "fifo"]
    asked_of = ["--out", str(site / "causes"), "--no-plots"]
    fine(*common, *asked_of)
    (folder,) = (site / "causes").iterdir()
    output = invoke("why", folder, "1").output
    match = re.search(r"100\.0% of the wait \(99 s\): (.*CPU.*)", output)
    assert match is not None
    fine("report", folder, "-o", site / "w.html")
    assert f"100%: {match[1]}" in (site / "w.html").read_text(encoding="utf-8")


def test_the_page_of_a_replay_says_how_well_it_reproduces_the_log(site: Path) -> None:
    for policy, expected in (
        ("fifo", "fifo reproduces the waits of the log"),
        ("ljf", "ljf does not reproduce the log"),
    ):
        asked(site, "replay", "--algo", policy, "--name", policy, "--no-plots")
        (folder,) = (site / "replay").glob(f"*-{policy}-*")
        page = site / f"{policy}.html"
        fine("report", folder, "-o", page)
        assert expected in header(page)
        assert ("furthest off in the mean: &lt;ann&gt;" in header(page)) or (
            "furthest off in the mean: bob" in header(page)
        )
