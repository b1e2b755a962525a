"""``dagsim serve --watch``: the journal of forecasts and their truth, the site's own command, metrics."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.asgi_requests import ask
from support.command_line import invoke

from dagsim.families.forecast.journal import Journal, Watched
from dagsim.families.forecast.prometheus import metrics

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import re
from tempfile import mkdtemp

import pytest
from support.hostile import HOSTILE, assert_plain

from dagsim.errors import InputError
from dagsim.families.forecast import forecast_page, snapshots
from dagsim.families.forecast.snapshots import Forecasted, ForecastSettings, Snapshots
from dagsim.families.forecast.state_command import StateCommand
from dagsim.families.web.asgi import application
from dagsim.families.web.folder_pages import Results

pytestmark = pytest.mark.family("web")

T = 1_700_000_000.0


def test_without_the_writer_of_pages_a_page_of_forecasts_is_refused(without_families: Callable[..., None]) -> None:
    without_families("web")
    done = invoke("eta", "--state", "now.json", "--html", "page.html")
    assert done.exit_code == 2
    assert "family web, which this installation lacks" in " ".join(done.output.replace("│", " ").split())


class Pool:
    """A process that has its forecasts ready when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Future[Forecasted]] = []

    def submit(self, *_: object) -> Future[Forecasted]:
        self.asked.append(Future())
        return self.asked[-1]


@pytest.mark.parametrize(("is_ready", "most_s"), [(False, 600.0), (True, 60.0)])
def test_only_the_first_forecast_of_a_process_may_take_longer_than_the_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ready: bool, most_s: float
) -> None:
    pool, ended, clock_s = Pool(), list[Any](), [0.0]
    monkeypatch.setattr(snapshots, "ProcessPoolExecutor", lambda *_: pool)
    monkeypatch.setattr(snapshots, "kill_workers", ended.append)
    monkeypatch.setattr(snapshots, "leave_to_workers", lambda _: None)
    monkeypatch.setattr(snapshots, "monotonic", lambda: clock_s[0])
    watched = Snapshots(tmp_path, ForecastSettings(tmp_path), Journal(tmp_path), 60.0)
    (tmp_path / "1.json").write_text("{}")
    watched.look()
    if is_ready:
        pool.asked[0].set_result(Forecasted("page", "", "", t=T))
        (tmp_path / "2.json").write_text("{}")
        watched.look()
    assert len(pool.asked) == 1 + is_ready
    clock_s[0] = most_s - 1
    watched.look()
    assert (ended, watched.latest.error) == ([], "")
    clock_s[0] = most_s + 1
    watched.look()
    watched.look()
    assert ended == [pool]
    assert f"took longer than {most_s:g} s" in watched.latest.error


def get(folder: Path, snapshots: Snapshots, path: str) -> tuple[int, str]:
    """Status and body of the server's answer to a request."""
    answer = ask(application(Results(folder, snapshots), "127.0.0.1"), path)
    return answer.status, answer.text


def forecast(job: str, low_s: float, high_s: float, partition: str = "gpu", user: str = "ann") -> Watched:
    middle_s = (low_s + high_s) / 2
    return Watched(job, user, partition, "Resources", True, low_s, middle_s, high_s, high_s)


def test_the_coverage_is_the_share_of_starts_within_their_intervals(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.seen(T, [forecast("1", 0, 100), forecast("2", 0, 100), forecast("3", 0, 100)], {})
    journal.seen(T + 60, [forecast("2", 200, 300)], {"1": (T + 50,)})  # 3 has left without a start
    journal.seen(T + 260, [], {"2": (T + 250,)})
    assert journal.coverage() == (1 / 3, 3)  # 1 in 50 s of 0 to 100; 2 in 250 s of 0 to 100, in 190 s of 200 to 300
    assert "33% had a 90% interval" in journal.sentence()


def test_only_the_last_week_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.seen(T, [forecast("1", 0, 1)], {})
    journal.seen(T + 60, [], {"1": (T + 50,)})
    journal.seen(T + 1e5, [forecast("2", 0, 7e5)], {})
    journal.seen(T + 6.5e5, [], {"2": (T + 6e5,)})
    assert journal.coverage() == (1.0, 1)


def test_starts_near_the_median_are_counted_beside_the_baselines(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    stated = {"slurm": 4000.0, "history": 60.0, "qbets": 5000.0}
    rows = [forecast("1", 0, 1000)._replace(baselines_s=stated), forecast("2", 0, 9000, "cpu")]
    journal.seen(T, rows, {})
    journal.seen(T + 660, [], {"1": (T + 100,), "2": (T + 600,)})  # medians: 500 s and 4,500 s
    for one in (journal, Journal(tmp_path)):
        assert one.best_baseline == "history"
        parts = one.figures()["by_partition"]
        assert parts["gpu"]["forecast"] == (1, (0.0, 1.0, 1.0))
        assert parts["gpu"]["slurm"] == (1, (0.0, 0.0, 0.0))
        assert parts["gpu"]["history"] == (1, (1.0, 1.0, 1.0))
        assert parts["cpu"] == {"forecast": (1, (0.0, 0.0, 0.0))}
        assert [*one.figures()["by_horizon"]] == ["under 10 min", "1 h to 4 h"]
    text = metrics([], journal, T, 0)
    labels = 'partition="gpu",horizon="under 10 min",of="history"'
    assert f"dagsim_starts_scored{{{labels}}} 1" in text
    assert f'dagsim_starts_within{{{labels},within="60"}} 1' in text


def test_a_journal_of_an_older_version_is_still_read(tmp_path: Path) -> None:
    lines = [
        {"t": T, "snapshot": [], "starts": {}, "gone": [], "forecasts": [["1", 0.0, 50.0, 100.0]]},
        {"t": T + 60, "snapshot": [], "starts": {"1": T + 40}, "gone": [], "forecasts": []},
    ]
    (tmp_path / "forecasts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert Journal(tmp_path).coverage() == (1.0, 1)


def test_a_journal_says_the_same_after_a_restart_and_loses_only_a_torn_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.seen(T, [forecast("1", 0, 100), forecast("2", 0, 10)], {})
    journal.seen(T + 60, [forecast("2", 0, 10)], {"1": (T + 50,)})
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + b'{"t": 17')  # killed while it wrote
    again = Journal(tmp_path)
    assert again.coverage() == journal.coverage() == (1.0, 1)
    again.seen(T + 120, [], {"2": (T + 100,)})
    assert journal.path.read_bytes().startswith(whole)
    assert Journal(tmp_path).coverage() == again.coverage() == (1 / 3, 3)


def test_a_snapshot_seen_twice_counts_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for _ in range(2):
        journal.seen(T, [forecast("1", 0, 100)], {})
    journal.seen(T + 60, [], {"1": (T + 50,)})
    assert journal.coverage() == (1.0, 1)


def test_a_forecast_of_an_array_is_for_its_next_task(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.seen(T, [forecast("1", 0, 100)], {"1": (T - 500,)})  # one of its tasks runs already
    journal.seen(T + 60, [forecast("1", 0, 100)], {"1": (T - 500,)})
    assert journal.coverage()[1] == 0
    journal.seen(T + 120, [], {"1": (T - 500, T + 90, T + 95)})
    assert journal.coverage() == (1.0, 2)


WRITER = """
import sys
from pathlib import Path
from dagsim.families.forecast.journal import Journal, Watched
journal, number = Journal(Path(sys.argv[1])), 0
while True:
    t = journal.latest_s + 60 or 60.0
    number += 1
    rows = [Watched(f"{t:.0f}", "u", "p", "", True, 0.0, 30.0, 90.0, 100.0)]
    journal.seen(t, rows, {f"{t - 60:.0f}": (t - 10,)})
    print(t, flush=True)
"""


def test_kills_lose_nothing_that_was_written(tmp_path: Path) -> None:
    for _ in range(3):
        words = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = [process.stdout.readline() for _ in range(20)]
            process.kill()
            told += process.stdout.readlines()
        last_s = max(float(line) for line in told if line.endswith("\n"))
        journal = Journal(tmp_path)
        assert journal.latest_s >= last_s
        assert journal.coverage() == (1.0, round(journal.latest_s / 60) - 1)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("print('{\"jobs\": []}')", ""),
        ("print('slurm_load_jobs error')", "printed no JSON"),
        ("print('[1]')", "printed JSON that is not an object"),
        ("import sys; sys.exit('down for repair')", "ended with 1: down for repair"),
        ("import time; time.sleep(60)", "took longer than 2 s and was ended"),
    ],
)
def test_a_command_that_fails_is_said_and_survived(tmp_path: Path, script: str, problem: str) -> None:
    source = StateCommand(f'{sys.executable} -c "{script}"'.replace('{"jobs": []}', '{\\"jobs\\": []}'), 2.0, tmp_path)
    source.call()
    assert problem in source.error
    assert bool(source.error) == bool(problem)
    assert len(list(tmp_path.glob("*.json"))) == (not problem)
    assert source.failures == bool(problem)


def test_the_last_three_snapshots_of_a_command_are_kept_and_no_other_file_is_removed(tmp_path: Path) -> None:
    for name in (*(f"{1_600_000_000_000 + number}.json" for number in range(5)), "mine.json", "12.json"):
        (tmp_path / name).write_text("{}")
    StateCommand(f"{sys.executable} -c 'print(dict())'", 60.0, tmp_path).call()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left[:3] == ["12.json", "1600000000003.json", "1600000000004.json"]
    assert left[4:] == ["mine.json"]


def test_a_command_needs_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be split"):
        StateCommand("squeue 'json", 60.0, tmp_path)
    with pytest.raises(InputError, match="is empty"):
        StateCommand(" ", 60.0, tmp_path)


def test_a_command_has_no_shell(tmp_path: Path) -> None:
    source = StateCommand("echo {} ; touch made", 2.0, tmp_path)
    source.call()
    assert "printed no JSON" in source.error
    assert not Path("made").exists()


def test_portals_and_prometheus_get_jobs_users_and_metrics(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    snapshots = Snapshots(tmp_path, ForecastSettings(tmp_path), journal, 60.0)
    rows = (forecast("1", 0, 100), forecast("2", 50, 150, "cpu", 'b"ob'))
    snapshots.latest = Forecasted("<p>", "now", "", "", T, rows, {})

    def jobs(path: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(get(tmp_path, snapshots, path)[1])["jobs"]
        return rows

    assert [row["job"] for row in jobs("/queue.json")] == ["1", "2"]
    assert [row["median_s"] for row in jobs("/queue.json?job=2")] == [100]
    assert [row["job"] for row in jobs("/queue.json?user=ann")] == ["1"]
    assert get(tmp_path, snapshots, "/queue.json?job=7")[0] == 404
    _, text = get(tmp_path, snapshots, "/metrics")
    assert 'dagsim_waiting_jobs{partition="gpu"} 1' in text
    assert 'dagsim_forecast_median_seconds{partition="cpu"} 100' in text
    assert "dagsim_snapshot_age_seconds" in text
    assert "coverage_ratio" not in text  # nothing has started yet


def test_labels_are_escaped(tmp_path: Path) -> None:
    text = metrics([forecast("1", 0, 1, 'a"b\\c\nd')], Journal(tmp_path), T, 0)
    assert 'partition="a\\"b\\\\c\\nd"' in text


def test_watching_needs_a_site(tmp_path: Path) -> None:
    result = invoke("serve", tmp_path, "--watch")
    assert result.exit_code == 2
    assert "--config" in result.output
    assert invoke("serve", tmp_path, "--command", "squeue").exit_code == 2


def test_a_forecast_that_finds_the_disk_full_is_told_and_recorded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def until(holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + 60
        while not holds() and time.monotonic() < until_s:
            time.sleep(0.02)
        assert holds()

    made = Forecasted("page", "now", "", t=T, rows=(forecast("1", 0, 100),))
    (tmp_path / "now.json").write_text("{}")
    monkeypatch.setattr(forecast_page, "forecast_snapshot", lambda *_: made)
    monkeypatch.setattr(snapshots, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr(snapshots, "kill_workers", ThreadPoolExecutor.shutdown)
    monkeypatch.setattr(snapshots, "leave_to_workers", lambda _: None)
    journal = Journal(tmp_path)
    watched = Snapshots(tmp_path, ForecastSettings(tmp_path / "site.yaml"), journal, 60.0)
    with monkeypatch.context() as disk:
        disk.setattr("dagsim.families.forecast.journal.append", full)
        watched.watch()
        until(lambda: "not recorded" in watched.problem and "No space left" in watched.problem)
    until(lambda: journal.latest_s == T)
    until(lambda: watched.problem == "")
    watched.close()
    assert [entry["forecasts"][0][0] for entry in map(json.loads, journal.path.read_text().splitlines())] == ["1"]


SITE = "cluster:\n  groups:\n  - {name: n, hosts: n1, count: 1, gpus: 0, cpus: 16, memory_gb: 64}\n"
SQUEUE = """
import json, time
now = int(time.time())
job = {"user_name": "kit", "account": "geo", "partition": "day", "qos": "std", "state_reason": "None",
       "submit_time": now - 600, "eligible_time": now - 600, "start_time": 0, "time_limit": 50, "node_count": 1,
       "cpus": 16, "tres_req_str": "cpu=16,mem=2G,node=1", "tres_alloc_str": "", "nodes": "", "dependency": "",
       "name": "j"}
runs = job | {"job_id": 1, "job_state": ["RUNNING"], "start_time": now - 60, "nodes": "n1",
              "tres_alloc_str": "cpu=16,mem=2G,node=1"}
print(json.dumps({"jobs": [runs, job | {"job_id": 2, "job_state": ["PENDING"]}], "last_update": now}))
"""


def test_a_served_queue_is_forecast_by_itself_and_survives_a_kill(tmp_path: Path) -> None:
    site, script, folder = tmp_path / "site.yaml", tmp_path / "squeue.py", tmp_path / "live"
    site.write_text(SITE)
    script.write_text(SQUEUE)
    words = [sys.executable, "-m", "dagsim", "serve", str(folder), "--port", "0", "--config", str(site), "--watch"]
    words += ["--command", f"{sys.executable} {script}", "--every", "20"]
    for round_ in (1, 2):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            journal, until_s = folder / "forecasts.jsonl", time.monotonic() + 240
            while time.monotonic() < until_s:
                lines = journal.read_bytes().splitlines() if journal.exists() else []
                if len(lines) >= round_:
                    break
                time.sleep(0.2)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        entries = [json.loads(line) for line in journal.read_bytes().splitlines()]
        assert len(entries) >= round_
        assert entries[0]["forecasts"][0][0] == "2"


def test_metrics_for_prometheus_have_a_line_for_each_hostile_partition() -> None:
    rows = [Watched("1", name, name, name, True, 1.0, 2.0, 3.0, 4.0) for name in HOSTILE.values()]
    text = metrics(rows, Journal(Path(mkdtemp())), 0.0, 0)
    assert_plain(text)
    waiting = re.findall(r'^dagsim_waiting_jobs\{partition="((?:[^"\\\n]|\\[\\"n])*)"\} 1$', text, re.MULTILINE)
    assert len(waiting) == len(HOSTILE)
