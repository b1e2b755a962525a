"""Run folders that are written by one process, which may end at any moment."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.runs import kept

from dagsim.config.schema import load_config
from dagsim.errors import RunFolderError
from dagsim.experiment import run_store as journal
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.simulate import run_policy
from dagsim.experiment.store import Store
from dagsim.files import append
from dagsim.stops import Stopped, exit_code

CONFIG = load_config(None, ["cluster.groups=[{name: t4, gpu: T4, gpus: 8}]", "workload.count=5", "seeds=3"])
SAME = ("runs.jsonl", "jobs.csv.gz", "tasks.csv.gz", "summary.json")


def make(root: Path, *policies: str) -> Store:
    return RunStore.create(root, "eval", CONFIG, argv=[], policies=policies or ("fifo",))


def whole(root: Path) -> Store:
    folder = make(root)
    kept(folder, CONFIG, ("fifo",))
    return folder


def contents(folder: Store) -> dict[str, bytes]:
    files = [folder.path / name for name in SAME] + sorted((folder.path / "schedules").iterdir())
    return {file.name: file.read_bytes() for file in files}


def seeds_in(path: Path) -> list[int]:
    rows = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    return list(dict.fromkeys(int(row.split(",")[1]) for row in rows))


class Killed(BaseException):
    """Stands for kill -9: nothing runs after it."""


def killed_in_write(monkeypatch: pytest.MonkeyPatch, number: int, share: float) -> None:
    """Stop write ``number`` of the journal in the middle, and all cleaning up with it."""
    count = iter(range(1000))

    def torn(path: Path, data: bytes, at: int) -> int:
        if next(count) < number:
            return append(path, data, at)
        append(path, data[: int(len(data) * share)], at)
        raise Killed

    monkeypatch.setattr(journal, "append", torn)
    monkeypatch.setattr(RunStore, "_mend", lambda self: None)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("write", range(4, 12))  # four writes a run: jobs, tasks, timing, runs
def test_killed_at_any_write_it_lists_only_whole_runs_and_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int, share: float
) -> None:
    folder = make(tmp_path / "killed")
    with monkeypatch.context() as patch, suppress(Killed):
        killed_in_write(patch, write, share)
        for seed in folder.manifest["seeds"]:
            folder.add(run_policy(CONFIG, "fifo", seed))
    del folder  # its lock goes with its process

    (path,) = (tmp_path / "killed").iterdir()
    listed = [json.loads(line)["seed"] for line in (path / "runs.jsonl").read_bytes().splitlines(True) if b"\n" in line]
    again = Store.open(path)
    assert [line.seed for line in again.lines()] == listed
    assert again.state == "interrupted"
    assert seeds_in(path / "jobs.csv.gz") == seeds_in(path / "tasks.csv.gz") == listed
    assert [again.schedule(number).seed for number in range(len(listed))] == listed
    again.resume()
    kept(again, CONFIG, ("fifo",))
    assert contents(again) == contents(whole(tmp_path / "whole"))


def test_a_second_writer_is_refused_with_the_process(tmp_path: Path) -> None:
    folder = make(tmp_path)
    other = Store.open(folder.path)
    assert other.state == "running"
    with pytest.raises(RunFolderError, match=rf"another process \({os.getpid()}\) is writing to it"):
        other.resume()
    folder.finish("interrupted")
    other.resume()


def test_a_full_disk_leaves_whole_runs_and_says_so(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.add(run_policy(CONFIG, "fifo", folder.manifest["seeds"][0]))
    before = {name: (folder.path / name).read_bytes() for name in ("runs.jsonl", "jobs.csv.gz", "tasks.csv.gz")}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Files may grow by 40 bytes more: the table of the jobs is cut short in the middle of a write.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["jobs.csv.gz"]) + 40, limits[1]))
    try:
        with pytest.raises(RunFolderError, match=r"cannot be written: File too large"):
            kept(folder, CONFIG, ("fifo",))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {name: (folder.path / name).read_bytes() for name in before} == before
    assert folder.state == "failed"
    assert "File too large" in (folder.path / "status.json").read_text()
    folder.resume()
    kept(folder, CONFIG, ("fifo",))
    assert contents(folder) == contents(whole(tmp_path / "whole"))


def test_a_folder_that_is_removed_ends_the_run_in_words(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for file in sorted(folder.path.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    folder.path.rmdir()
    with pytest.raises(RunFolderError, match="cannot be written: No such file or directory"):
        kept(folder, CONFIG, ("fifo",))


def test_rows_that_somebody_removed_are_missed(tmp_path: Path) -> None:
    folder = whole(tmp_path)
    (folder.path / "tasks.csv.gz").write_bytes(b"")
    with pytest.raises(RunFolderError, match=r"tasks\.csv\.gz: is shorter than the \d+ bytes"):
        Store.open(folder.path).resume()


def test_a_folder_whose_manifest_names_no_policies_is_read_but_not_resumed(tmp_path: Path) -> None:
    folder = whole(tmp_path)
    (folder.path / "manifest.json").write_text(json.dumps(folder.manifest | {"policies": []}))
    again = Store.open(folder.path)
    assert len(again.lines()) == 3
    with pytest.raises(RunFolderError, match=r"cannot be resumed.*has no --resume.*repeat the run"):
        again.resume()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_signals_to_stop_keep_what_is_finished(tmp_path: Path, number: int, code: int) -> None:
    folder = make(tmp_path)

    def at_second(step: object) -> None:
        if getattr(step, "done", 0) == 1:
            signal.raise_signal(number)

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as stop:
        kept(folder, CONFIG, ("fifo",), at_second)
    assert exit_code(stop.value) == code
    assert isinstance(stop.value, Stopped) == (number != signal.SIGINT)
    assert (folder.state, len(folder.lines())) == ("interrupted", 1)
    assert signal.getsignal(number) is before


def test_a_signal_that_the_caller_ignores_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        kept(make(tmp_path), CONFIG, ("fifo",), lambda step: signal.raise_signal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from dagsim.files import Lock; lock = Lock(Path(sys.argv[1]))\n"
    script += "assert lock.claim(); print('held', flush=True); sys.stdin.read()"
    from dagsim.files import Lock

    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = Lock(tmp_path / "lock")
        assert not lock.claim()
        holder.kill()
        holder.wait()
        assert lock.claim()
        lock.release()


def test_append_keeps_the_file_where_it_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write: Callable[[int, memoryview], int] = os.write
    assert append(tmp_path / "x", b"abc", 0) == 3

    def short(handle: int, data: memoryview) -> int:
        if len(data) < 4:
            raise OSError(28, "No space left on device")
        return write(handle, data[:2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space left"):
            append(tmp_path / "x", b"defgh", 3)
    assert (tmp_path / "x").read_bytes() == b"abc"
    assert append(tmp_path / "x", b"Z", 2) == 3
    assert (tmp_path / "x").read_bytes() == b"abZ"
