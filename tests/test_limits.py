"""What nobody can mean: refused in one line, at once, and in little memory."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command_line import invoke
from typer.testing import Result

TINY = ["--set", "cluster.groups=[{name: t4, gpu: T4, gpus: 8}]", "--set", "workload.count=3", "--seeds", "1"]
LONG = "x" * 5000


@pytest.fixture
def small() -> Iterator[None]:
    """The test ends within a minute and 300 MB."""
    tracemalloc.start()
    began = time.monotonic()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.monotonic() - began < 60  # a second or two on a quiet machine; without limits for ever
    assert peak < 300e6


def refused(result: Result, *texts: str) -> None:
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1, result.stderr
    assert len(lines[0]) < 1200
    for text in texts:
        assert text in lines[0]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--algo", ":"], "cannot read policy ':': expected a name, module:attr or path"),
        (["--algo", "a:"], "policy"),
        (["--algo", LONG], "unknown policy 'xxx"),
        (["--config", LONG], "xxx"),
        (["--workload", LONG], "no workload 'xxx"),
        (["--out", LONG], "cannot be written: File name too long"),
        (["--config", "heterogenous"], "did you mean the workload: --workload 'heterogeneous'?"),
        (["--algo", "eft-wait[theta=abc]"], "policy 'eft-wait': theta must be a number, got 'abc'"),
        (["--algo", "tiresias[thresholds=3250/7200]"], "thresholds must be a number or numbers in brackets ([1,2])"),
        (["--set", "cluster.groups=[{name: a, gpu: T4, gpus: 100000000000}]"], "gpus: must be at most 1,024"),
        (["--set", "cluster.groups=[{name: a, gpu: T4, gpus: 8, count: 100000000}]"], "count: must be at most 100,000"),
        (["--set", "workload.count=100000000"], "count: must be at most 10,000,000"),
        (["--set", "seeds=10000000000"], "seeds: must be at most 1,000,000"),
    ],
)
def test_what_nobody_can_mean_is_refused(arguments: list[str], text: str, tmp_path: Path) -> None:
    refused(
        invoke(
            "eval",
            *TINY[: 0 if "--set" in arguments else 4],
            *([] if "--out" in arguments else ["--out", tmp_path]),
            *arguments,
        ),
        text,
    )


def test_lists_of_thresholds_are_taken(tmp_path: Path) -> None:
    result = invoke(
        "eval", *TINY, "--algo", "tiresias[thresholds=[3250,7200]]", "--quiet", "--no-plots", "--out", tmp_path
    )
    assert result.exit_code == 0, result.output


def billions(folder: Path) -> Path:
    lines = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else '1'}]" for n in range(12)]
    (folder / "x.yaml").write_text("\n".join(lines) + "\n")
    return folder / "x.yaml"


def listed(folder: Path) -> Path:
    (folder / "x.yaml").write_text("- policy: sjf\n- seeds: 3\n")
    return folder / "x.yaml"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "x.csv")
    return folder / "x.csv"


def large(folder: Path) -> Path:
    with (folder / "x.yaml").open("wb") as file:
        file.truncate(1 << 40)
    return folder / "x.yaml"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (billions, "more than 100,000 values (each use of an alias counts)"),
        (listed, "x.yaml:1:1: the file must be a mapping of keys to values, got a list"),
        (pipe, "is a named pipe, not a file"),
        (large, "has more than 10,000,000 bytes"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(make: Callable[[Path], Path], text: str, tmp_path: Path) -> None:
    refused(invoke("eval", "--config", make(tmp_path), "--seeds", 1, "--out", tmp_path), text)


def gzip_bomb(folder: Path) -> Path:
    with gzip.open(folder / "x.csv.gz", "wb") as file:
        file.write(
            b"id,arrival_s,gpus,duration_s,gpu_type,priority,tenant,deadline_s,instances,gang,cpus,memory_gb,estimate_s,model,batch,weight\n"
        )
        for _ in range(160):
            file.write(b"a" * (1 << 20))
    return folder / "x.csv.gz"


def tar_of_a_bomb(folder: Path) -> Path:
    member = tarfile.TarInfo("x.csv")
    member.size = 160 << 20
    with tarfile.open(folder / "x.tar.gz", "w:gz", compresslevel=6) as archive:
        archive.addfile(member, Letters(member.size))
    return folder / "x.tar.gz"


class Letters(io.RawIOBase):
    """So many letters, never all of them in memory."""

    def __init__(self, size: int) -> None:
        self.left = size

    def read(self, size: int = -1) -> bytes:
        size = min(size, self.left)
        self.left -= size
        return b"a" * size


def tar_of_many(folder: Path) -> Path:
    with tarfile.open(folder / "x.tar.gz", "w:gz") as archive:
        for number in range(20_000):
            archive.addfile(tarfile.TarInfo(f"{number}.csv"), io.BytesIO())
    return folder / "x.tar.gz"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (pipe, "is a named pipe, but a trace has to be read more than once, so write it to a file first"),
        (gzip_bomb, "expand to more than 250 times as many, which is implausible"),
        (tar_of_a_bomb, "expand to more than 250 times as many, which is implausible"),
        (tar_of_many, "more than 2,000 files; unpack it first"),
        (lambda folder: Path("/dev/zero"), "is a device or socket"),
        (lambda folder: LONG, "File name too long"),
    ],
    ids=["pipe", "gzip bomb", "tar of a bomb", "tar of many", "device", "long path"],
)
def test_a_file_that_is_no_trace_is_refused(
    make: Callable[[Path], Path], text: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = make(tmp_path)
    request.getfixturevalue("small")
    refused(invoke("replay", "--trace", path, "--out", tmp_path / "out"), text)


def test_code_that_cannot_be_imported_is_named_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unfinished_policy.py").write_text("class Mine(:\n")
    (tmp_path / "needy_policy.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    refused(
        invoke("eval", *TINY, "--algo", "unfinished_policy:Mine", "--out", tmp_path),
        "policy 'unfinished_policy:Mine' cannot be imported: SyntaxError",
    )
    refused(
        invoke("eval", *TINY, "--algo", "needy_policy:Mine", "--out", tmp_path),
        "cannot be imported: ModuleNotFoundError: No module named 'a_package_that_nobody_has'",
    )


def test_a_broken_plug_in_is_a_failed_row_of_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "plugged-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[dagsim.policies]\nbroken = plugged_policy:Mine\n")
    (tmp_path / "plugged_policy.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = invoke("baseline", *TINY, "-a", "broken", "-a", "sjf", "--no-plots", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "sjf" in result.stdout
    assert "failed: broken, seed 0: PluginError: policy 'broken' (from the package plugged) cannot" in result.stderr
    refused(invoke("eval", *TINY, "-a", "broken", "--out", tmp_path), "cannot be imported: ZeroDivisionError")
