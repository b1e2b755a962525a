"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from dagsim.errors import InputError
from dagsim.files import open_lines, replaced, write_text


def write_half(path: Path) -> None:
    with replaced(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError


def test_what_fails_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("before")
    with pytest.raises(RuntimeError):
        write_half(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_through_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "table.csv"
    write_text(path, "after")
    assert path.read_text() == "after"
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/table\.csv: cannot be written"):
        write_text(tmp_path / "file" / "table.csv", "")


def test_bytes_that_did_not_reach_the_disk_are_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    code = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"), replaced(tmp_path / "a", durable=True) as temporary:
        temporary.write_text("lost")
    assert list(tmp_path.iterdir()) == []
    code = errno.EINVAL  # of a file system that cannot wait
    with replaced(tmp_path / "a", durable=True) as temporary:
        temporary.write_text("kept")
    assert (tmp_path / "a").read_text() == "kept"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        write_text(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_line_that_is_too_long_is_refused_before_all_of_it_is_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("dagsim.files.LONGEST_LINE_B", 1 << 20)
    (tmp_path / "log").write_bytes(b"short\n" + b"x" * (1 << 20) + b"\n" + b"y" * (40 << 20))
    with open_lines(tmp_path / "log") as lines:
        assert next(lines) == "short\n"
        assert len(next(lines)) == (1 << 20) + 1  # exactly as long as a line may be
        with pytest.raises(InputError, match=r"log:3: the line has more than 1,048,576 bytes"):
            next(lines)
        assert lines.buffer.raw._stream.tell() < 4 << 20


def test_a_compressed_line_is_as_long_as_it_becomes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("dagsim.files.LONGEST_LINE_B", 1 << 20)
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"short\n" + b"x" * (2 << 20)))
    with open_lines(tmp_path / "log.gz") as lines, pytest.raises(InputError, match=r"log\.gz:2: the line has more"):
        list(lines)
