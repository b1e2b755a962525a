from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import pytest
from support.asgi_requests import Answer, ask
from support.command_line import invoke

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from support.runs import let_go, outcomes

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.store import Store
from dagsim.families.web import asgi
from dagsim.families.web.asgi import Connection, application
from dagsim.families.web.folder_pages import Results
from dagsim.families.web.server import Guard, host_of

EVIL = "</script><img src=x onerror=alert(1)>"
CONFIG = Config.model_validate({"workload": {"kind": "synthetic", "count": 12}, "seeds": 2})


def make(root: Path, *, finished: int = 4, state: str | None = "done", policies=("fifo", "sjf")) -> Store:
    folder = RunStore.create(root, "baseline", CONFIG, argv=["dagsim"], policies=policies)
    for result in list(outcomes(CONFIG, ("fifo", "sjf")))[:finished]:
        folder.add(result)
    if state is not None:
        folder.finish(state)
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    make(root)
    return root


def served(root: Path, bound_to="127.0.0.1"):
    return application(Results(root), bound_to)


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()
    }


def test_the_list_and_every_page_are_sealed_and_nothing_is_written(results: Path) -> None:
    before, app = contents(results), served(results)
    (run,) = [path.name for path in results.iterdir()]
    for path in ("/", f"/runs/{run}", f"/compare?run={run}"):
        answer = ask(app, path)
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "connect-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert not re.search(r"unsafe|http|\*", policy)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert run in answer.text
    assert contents(results) == before


@pytest.mark.parametrize(
    "path",
    [
        "/runs/../../../etc/passwd",
        "/runs/%2e%2e/%2e%2e/etc/passwd",
        "/runs/..%2f..%2fetc%2fpasswd",
        "/runs//etc/passwd",
        "/runs/%00",
        "/runs/RUN/manifest.json",
        "/runs/RUN/..",
        "/runs/./RUN",
        "/compare?run=../RUN",
        "/compare?run=/etc",
        "/compare",
        "/static/page.js",
    ],
)
def test_no_address_leads_out_of_the_folder(results: Path, path: str) -> None:
    (run,) = [folder.name for folder in results.iterdir()]
    answer = ask(served(results), path.replace("RUN", run))
    assert answer.status == 404
    assert "root:" not in answer.text


def test_links_are_not_followed(results: Path, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    inside.mkdir()
    shutil.copytree(results, outside)
    (run,) = outside.iterdir()
    (inside / "linked").symlink_to(run)
    shutil.copytree(run, inside / "whole")
    (inside / "whole" / "command.txt").unlink()
    (inside / "whole" / "command.txt").symlink_to("/etc/passwd")
    app = served(inside)
    assert ask(app, "/runs/linked").status == 404
    refused = ask(app, "/runs/whole")
    assert refused.status == 404
    assert "is a link" in refused.text
    assert "root:" not in refused.text
    assert [run["state"] for run in json.loads(ask(app, "/runs.json").text)["runs"]] == ["unreadable"]


@pytest.mark.parametrize(
    ("host", "bound_to", "status"),
    [
        ("127.0.0.1:8765", "127.0.0.1", 200),
        ("localhost", "127.0.0.1", 200),
        ("[::1]:80", "::1", 200),
        ("evil.example:8765", "127.0.0.1", 421),
        ("127.0.0.1.evil.example", "127.0.0.1", 421),
        ("192.168.1.7:8765", "127.0.0.1", 421),
        ("192.168.1.7:8765", "0.0.0.0", 200),
        ("evil.example", "0.0.0.0", 421),
        ("", "127.0.0.1", 421),
        ("[::1", "127.0.0.1", 421),
        ("localhost:1, evil", "127.0.0.1", 421),
        ("localhost,evil", "127.0.0.1", 421),
        ("localhost:x", "127.0.0.1", 421),
        ("localhost:", "127.0.0.1", 200),
    ],
)
def test_only_names_of_this_server_are_answered(results: Path, host: str, bound_to: str, status: int) -> None:
    assert ask(served(results, bound_to), "/runs.json", host=host).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_only_read(results: Path, method: str) -> None:
    answer = ask(served(results), "/", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_a_host_loses_its_port() -> None:
    assert [host_of(header) for header in ("A:1", "[::1]:2", "::1", "[x", "[::1]x")] == ["a", "::1", "::1", "", ""]


def test_markup_in_names_is_text_in_the_list(tmp_path: Path) -> None:
    make(tmp_path, policies=(EVIL, "fifo"))
    app = served(tmp_path)
    text = ask(app, "/").text
    assert "<img" not in text
    assert text.count("</script>") == 2  # the data's and the script's own
    inert = re.search(r'<script type="application/json" id="first">(.*?)</script>', text)[1]
    assert json.loads(inert)[0]["policies"][0] == EVIL
    assert "<img" not in escape(EVIL)


def test_runs_are_told_as_they_go_and_the_dead_as_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "a")
    running = make(tmp_path / "b", finished=1, state=None)
    results = Results(tmp_path)
    states = {state.id.partition("/")[0]: state for state in results.states()}
    assert [(states[name].state, states[name].done, states[name].total) for name in "ab"] == [
        ("done", 4, 4),
        ("running", 1, 4),
    ]
    before = contents(running.path)
    let_go(running)
    later_s = time.monotonic() + 60.0
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert results.state(states["b"].id).state == "dead"
    assert Store.read(running.path).state == "running"  # looked at, and left as it was
    assert contents(running.path) == before


def test_events_bring_all_runs_first_and_then_what_changes(tmp_path: Path) -> None:
    folder = make(tmp_path, finished=1, state=None)
    extra = list(outcomes(CONFIG, ("fifo", "sjf")))[1]

    def enough(answer: Answer) -> bool:
        messages = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: ")]
        if len(messages) == 1 and len(folder.lines()) == 1:
            folder.add(extra)
        return len(messages) == 2

    answer = ask(served(tmp_path), "/events", enough=enough)
    assert answer.headers["content-type"].startswith("text/event-stream")
    messages = [json.loads(line[6:])["runs"] for line in answer.text.split("\n\n") if line.startswith("data: ")]
    assert [[run["done"] for run in runs] for runs in messages] == [[1], [2]]


def test_events_say_at_once_that_there_is_no_run_yet(tmp_path: Path) -> None:
    answer = ask(served(tmp_path), "/events", enough=lambda answer: bool(answer.text))
    assert answer.text == 'data: {"runs": [], "gone": []}\n\n'


def test_a_second_passes_between_two_looks_at_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, waited_s, slept = list[float](), [0.0], asgi.anyio.sleep
    states = Results.states

    async def sleep(seconds: float) -> None:
        waited_s[0] += seconds
        await slept(0)

    def look(self: Results) -> Any:
        looks.append(waited_s[0])
        if len(looks) == 3:
            make(tmp_path)
        return states(self)

    monkeypatch.setattr(asgi.anyio, "sleep", sleep)
    monkeypatch.setattr(Results, "states", look)
    ask(served(tmp_path), "/events", enough=lambda answer: answer.text.count("data: ") == 2)
    assert looks[:3] == pytest.approx([0.0, 1.0, 2.0])


def test_events_say_which_runs_are_gone(tmp_path: Path) -> None:
    folder = make(tmp_path)
    name = folder.path.name

    def enough(answer: Answer) -> bool:
        if answer.text.count("data: ") == 1 and folder.path.exists():
            shutil.rmtree(folder.path)
        return answer.text.count("data: ") == 2

    answer = ask(served(tmp_path), f"/events?run={name}&run=never", enough=enough)
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: ")]
    assert [event["gone"] for event in events] == [["never"], [name]]


def test_times_in_the_list_are_plain_numbers(tmp_path: Path) -> None:
    folder = make(tmp_path)
    path = folder.path / "runs.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["metrics"]["jct_s.mean"] = 45_970.25
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert Results(tmp_path).states()[0].result == "fifo: mean JCT 45,970 s"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: local", b"GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /"])
def test_clients_that_send_half_a_request_lose_their_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn
    from uvicorn.server import ServerState

    monkeypatch.setattr("dagsim.families.web.asgi._REQUEST_S", 0.3)

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def drops(clients: int) -> int:
        config, state = uvicorn.Config(app, http=Connection, lifespan="off", log_level="critical"), ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(config, state, {}, loop), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]
        for _, writer in pairs:
            writer.write(sent)
        ended = [asyncio.wait_for(_end_of(reader), 20) for reader, _ in pairs]
        count = sum(await asyncio.gather(*ended))
        for _, writer in pairs:
            writer.close()
        server.close()
        assert not state.connections
        return count

    assert asyncio.run(drops(200)) == 200


async def _end_of(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionResetError):
        await reader.read()
    return True


def test_a_run_without_a_result_waits_for_its_first(tmp_path: Path) -> None:
    folder = make(tmp_path, finished=0, state=None)
    answer = ask(served(tmp_path), f"/runs/{folder.path.name}")
    assert answer.status == 200
    assert "Nothing is finished yet." in answer.text


def test_a_damaged_folder_is_listed_as_unreadable(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder.path / "config.yaml").write_text("policy: [")
    (state,) = Results(tmp_path).states()
    assert state.state == "unreadable"
    assert "config.yaml" in state.note


def test_a_claim_waits_for_whoever_only_looks(tmp_path: Path) -> None:
    import fcntl
    import threading

    folder = make(tmp_path, state="interrupted")
    handle = os.open(folder.path / "lock", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    threading.Timer(0.005, os.close, (handle,)).start()
    folder.claim()


def test_a_port_in_use_and_a_missing_folder_are_said_plainly(results: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = invoke("serve", results, "--port", port)
    assert done.exit_code == 2
    assert f"port {port} of 127.0.0.1 is already in use" in done.stderr
    gone = invoke("serve", tmp_path / "none")
    assert gone.exit_code == 2
    assert "no such folder" in gone.stderr
    with pytest.raises(InputError, match="there is no run folder"):
        Results(results).folder("x")


def test_ctrl_c_ends_it_without_a_word_too_many(results: Path) -> None:
    command = [sys.executable, "-m", "dagsim", "serve", str(results), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first_line = server.stdout.readline()
        port = int(re.search(r":(\d+)/ shows", first_line)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as listening:
            listening.sendall(f"GET /events HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            assert b"200 OK" in listening.recv(4096)
            began = time.monotonic()
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=20)
        assert (server.returncode, errors) == (0, "")
        assert time.monotonic() - began < 10
    finally:
        server.kill()
        server.wait()


def test_the_guard_answers_nothing_but_http() -> None:
    async def app(scope, receive, send):
        raise AssertionError

    asyncio.run(Guard(app, "127.0.0.1")({"type": "websocket"}, None, None))


@pytest.mark.family("learning")
def test_trainings_count_iterations_and_sweeps_cells(tmp_path: Path) -> None:
    from dagsim.config.schema import load_config
    from dagsim.experiment.carry_out import carry_out
    from dagsim.experiment.executors import Local
    from dagsim.experiment.plan import Plan
    from dagsim.experiment.store import Store
    from dagsim.experiment.sweep_grid import read_grid
    from dagsim.experiment.training_log import TrainingLog

    training = RunStore.create(tmp_path, "train", load_config(None, ["train.iterations=9"]), argv=["dagsim"])
    log = TrainingLog(training.path)
    for number, ratio in ((1, 1.5), (2, 0.875)):
        log.add({"iteration": number, "samples": 10.0 * number, "ratio": ratio})
    (tmp_path / "grid.yaml").write_text("set: {workload.count: 5}\nover: {policy: [fifo, sjf]}\nseeds: 2\n")
    plan = Plan.of_grid(read_grid(tmp_path / "grid.yaml"))
    carry_out(Store.begin(tmp_path, plan, argv=["dagsim"]), plan, Local("1"), limit=3)
    progress = {state.unit: (state.done, state.total, state.result) for state in Results(tmp_path).states()}
    assert progress == {"iterations": (2, 9, "ratio 0.875"), "cells": (3, 4, "")}
    app = served(tmp_path)
    assert "3 of 4 cells are finished." in ask(app, "/runs/sweep-grid").text
    assert "0.875 times that of the reference" in ask(app, f"/runs/{training.path.name}").text


def test_a_folder_that_names_code_of_others_is_shown_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil_served.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    folder = make(tmp_path / "results")
    config = folder.path / "config.yaml"
    text = config.read_text(encoding="utf-8").replace("network: null", "network:\n  kind: evil_served:Net")
    config.write_text(text, encoding="utf-8")
    manifest = json.loads((folder.path / "manifest.json").read_text(encoding="utf-8"))
    manifest["config_sha256"] = sha256(config.read_bytes()).hexdigest()
    (folder.path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    app = served(tmp_path / "results")
    assert [run["state"] for run in json.loads(ask(app, "/runs.json").text)["runs"]] == ["done"]
    assert ask(app, f"/runs/{folder.path.name}").status == 200
    assert "evil_served" not in sys.modules


@pytest.mark.family("forecast", "slurm")
def test_the_queue_of_the_newest_snapshot(tmp_path: Path) -> None:
    """A snapshot becomes a page; a damaged one leaves the page and says why; links are not followed."""
    from dagsim.families.forecast.snapshots import ForecastSettings, Snapshots

    site = tmp_path / "site.yaml"
    site.write_text("cluster: {groups: [{name: n, count: 1, gpus: 0, cpus: 4, memory_gb: 64}]}\npolicy: easy\n")
    now_s = 1_700_000_000
    job = {
        "job_id": 7, "user_name": EVIL, "account": "bio", "partition": "p", "job_state": ["PENDING"],
        "state_reason": "Resources", "submit_time": now_s - 60, "eligible_time": now_s - 60, "start_time": 0,
        "time_limit": 60, "node_count": 1, "cpus": 4, "tres_req_str": "cpu=4,mem=1G,node=1", "nodes": "",
    }  # fmt: skip
    folder = tmp_path / "snapshots"
    folder.mkdir()
    snapshots = Snapshots(folder, ForecastSettings(site, futures=3))
    results = Results(folder, snapshots)
    assert "no snapshot yet" in results.state("queue").note
    (folder / "now.json").write_text(json.dumps({"jobs": [job], "last_update": now_s}))
    try:
        assert "no snapshot yet" in ask(application(results, "127.0.0.1"), "/runs/queue").text

        def until(done) -> None:
            for _ in range(600):
                if done(results.state("queue")):
                    return
                time.sleep(0.1)
            raise AssertionError(results.state("queue"))

        until(lambda state: state.done == 1)
        page = ask(application(results, "127.0.0.1"), "/runs/queue").text
        assert "1 of 1 waiting jobs probably start within 1 h." in page
        assert "onerror=alert(1)&gt;" in page
        assert EVIL not in page
        (folder / "zzz.json").write_text('{"jobs": [{"job_state": "PENDING", "submit_time"')
        until(lambda state: state.note)
        assert results.state("queue").state == "running"
        assert "zzz.json" in results.state("queue").note
        assert "1 job waits" in results.state("queue").result
        assert ask(application(results, "127.0.0.1"), "/runs/queue").text == page
        (folder / "link.json").symlink_to(site)
        os.utime(folder / "link.json", follow_symlinks=False)
        assert snapshots._next()[0].name == "zzz.json"
    finally:
        snapshots.close()


@pytest.mark.parametrize("words", [["--history", "x"], ["--config", "steady", "--history", "missing.txt"]])
def test_options_of_the_queue_are_checked(words: list[str], tmp_path: Path) -> None:
    result = invoke("serve", tmp_path, *words)
    assert result.exit_code == 2
