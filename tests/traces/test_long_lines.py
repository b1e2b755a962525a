"""A line without end is refused, whatever reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.hostile import OPENED

from dagsim.errors import ConfigError, DagsimError, ModelError, TraceError
from dagsim.systems.cluster.models.failures import FailureLog
from dagsim.systems.cluster.models.throughputs import ThroughputTable
from dagsim.traces import READERS, open_trace
from dagsim.traces.source import Source

SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"
LONG = "1 " * (5 << 19)
"""A line of 5 MB, more than any reader takes at once."""
HEADS = {"swf": "; UnixStartTime: 0\n", "csv": "id,arrival_s,gpus,duration_s\n", "json": '{"jobs": [{"name": "'}


@pytest.fixture
def long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dagsim.files.LONGEST_LINE_B", 1 << 16)
    monkeypatch.setattr("dagsim.traces.documents._LONGEST", 1 << 16)

    def file(head: str, name: str = "log") -> Path:
        (tmp_path / name).write_text(head + "1 " * (1 << 17) + "\n")
        return tmp_path / name

    return file


@pytest.mark.parametrize("read", [lambda source: list(source.lines()), Source.read_bytes], ids=["lines", "bytes"])
def test_a_source_names_the_line(long_file, read) -> None:
    with pytest.raises(TraceError, match=r"log:2: the line has more than 65,536 bytes"):
        read(Source(long_file("head\n")))


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda path: FailureLog(str(path)).start(4, 0), ModelError),
        (ThroughputTable.read, ConfigError),
    ],
)
def test_tables_refuse_it_with_their_own_error(long_file, read, error) -> None:
    with pytest.raises(error, match="the line has more than 65,536 bytes"):
        read(long_file("", "table.txt"))


@pytest.mark.parametrize("format_", READERS.names())
def test_no_reader_keeps_such_a_line(long_file, format_) -> None:
    for kind, head in HEADS.items():
        with pytest.raises(DagsimError) as refusal:
            list(open_trace(long_file(head, f"log.{kind}"), format_).jobs())
        assert len(str(refusal.value)) < 1100  # with the path


@pytest.mark.parametrize("format_", READERS.names())
def test_every_reader_refuses_its_own_file_with_such_a_line(format_, tmp_path, monkeypatch) -> None:
    for limit in ("dagsim.files.LONGEST_LINE_B", "dagsim.traces.documents._LONGEST"):
        monkeypatch.setattr(limit, 1 << 16)
    for opened in OPENED[format_]:
        top = Path(opened).parts[0]
        root = tmp_path / opened.replace("/", "-")
        shutil.copytree(SAMPLES / top, root)
        path = root / Path(*Path(opened).parts[1:])
        jobs = list(open_trace(path, format_).jobs())
        assert jobs
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        refused = []
        for file in files:
            whole = file.read_bytes()
            for longer in (whole + LONG.encode() + b"\n", whole.replace(b'"', b'"' + LONG.encode(), 1)):
                file.write_bytes(longer)
                try:
                    list(open_trace(path, format_).jobs())
                except DagsimError as error:
                    refused.append("more than 65,536 " in str(error) and len(str(error)) < 1000)
                finally:
                    file.write_bytes(whole)
        assert any(refused), opened
