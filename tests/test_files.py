"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dagsim.errors import InputError
from dagsim.files import replaced, write_text


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
