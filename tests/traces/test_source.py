"""Where bytes come from, and what is said of those that are no trace."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from dagsim.errors import TraceError
from dagsim.traces import ReadReport, Source, open_trace
from dagsim.traces.chunks import read_rows

TEXT = "id,size\na,1\nb,2\n"


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)  # the same bytes, and names of tests, in every process


def archive(path: Path, **members: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(f"{name}.csv")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def fields(source: Source, columns: str, **rest: object) -> list[tuple[str, list[str]]]:
    rows = read_rows(source, ReadReport(), columns.split(), **rest)  # type: ignore[arg-type]
    return [(source.where(number).rpartition("/")[2], list(row)) for number, row in rows]


@pytest.mark.parametrize(
    "content", [TEXT.encode(), packed(TEXT), TEXT.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + TEXT.encode()]
)
def test_plain_gzip_crlf_and_byte_order_mark_read_the_same(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    source = Source(tmp_path / "t.csv")
    assert list(source.lines()) == [(1, "id,size"), (2, "a,1"), (3, "b,2")]
    assert source.head(1) == ["id,size"]


def test_a_directory_is_its_shards_by_name_without_documents(tmp_path: Path) -> None:
    for name, text in {
        "part-1.csv": "b\n",
        "part-0.csv.gz": "a\n",
        "README.md": "#",
        ".hidden": "x",
        "in/part-2.csv": "c\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(packed(text) if name.endswith("gz") else text.encode())
    source = Source(tmp_path)
    assert [file.name for file in source.files] == ["part-2.csv", "part-0.csv.gz", "part-1.csv"]
    assert [line for _, line in source.lines()] == ["c", "a", "b"]
    chosen = source.select("in/*.csv")
    assert [(chosen.where(number), line) for number, line in chosen.lines()] == [(f"{tmp_path}/in/part-2.csv:1", "c")]


def test_an_archive_is_its_members_and_a_member_can_be_named(tmp_path: Path) -> None:
    path = archive(tmp_path / "t.tar.gz", b="2\n", a="1\n")
    assert [line for _, line in Source(path).lines()] == ["1", "2"]
    assert [line for _, line in Source(f"{path}:b.csv").lines()] == ["2"]
    assert Source(f"{path}:b.csv").name == "b.csv"
    with pytest.raises(
        TraceError, match=r"t\.tar\.gz:c\.csv: the archive has no such member; it contains a\.csv, b\.csv"
    ):
        list(Source(f"{path}:c.csv").lines())


def test_beside_finds_the_neighbours_of_a_file(tmp_path: Path) -> None:
    for name in ("pods.csv", "nodes.csv"):
        (tmp_path / name).write_text("x\n")
    assert [file.name for file in Source(tmp_path / "pods.csv").beside("node*").files] == ["nodes.csv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ":1: this is a Git LFS pointer"),
        (b"<!DOCTYPE html>\n<html>", ":1: this is an HTML page"),
        (b"  <html lang=en>", ":1: this is an HTML page"),
        (b"", ":1: the file is empty"),
        (b"\n \n", ":1: the file is empty"),
        (packed(""), ":1: the file is empty"),
        (b"PK\x03\x04\0\0\0", ":1: a ZIP archive or a spreadsheet"),
        (bytes(range(1, 32)), ":1: this is binary data"),
        (b"\x1f\x8b\x08garbage that is no gzip", ":1: the compressed data is damaged or cut off"),
        (b"a\nb\n\xff\xfe\n", ":3: not UTF-8 text"),
    ],
)
def test_what_is_no_trace_gets_its_own_message(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        list(Source(path).lines())
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_truncated_gzip_names_the_line_where_it_ends(tmp_path: Path) -> None:
    whole = packed("".join(f"{line * 7919 % 10007}\n" for line in range(20000)))
    (tmp_path / "t.csv.gz").write_bytes(whole[: len(whole) // 2])
    read: list[tuple[int, str]] = []
    with pytest.raises(TraceError) as caught:
        read.extend(line for line in Source(tmp_path / "t.csv.gz").lines())
    assert str(caught.value).startswith(f"{tmp_path}/t.csv.gz:")
    assert "the compressed data is damaged or cut off here" in str(caught.value)


def test_a_missing_file_and_an_empty_directory_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.csv: no such file"):
        list(Source(tmp_path / "nowhere.csv").lines())
    with pytest.raises(TraceError, match="contains no files"):
        list(Source(tmp_path).lines())


def test_rows_find_columns_by_the_header_and_else_by_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Size, id,more\n1,a,x\n")
    (tmp_path / "b.csv").write_text("b,2\n")
    source = Source(tmp_path)
    assert fields(source, "id size") == [("a.csv:2", ["a", "1"]), ("b.csv:1", ["b", "2"])]
    assert fields(source.select("b.csv"), "id size", optional=["more"]) == [("b.csv:1", ["b", "2", ""])]
    with pytest.raises(TraceError, match=r"b\.csv:1: the header lacks 'id', 'size'; it has b, 2"):
        fields(source.select("b.csv"), "id size", header=True)


def test_rows_take_quoted_line_ends_and_number_by_first_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'id,size\r\n"a\r\nb",1\r\n\r\nc,2\r\n')
    assert fields(Source(tmp_path / "t.csv"), "id size") == [("t.csv:2", ["a\nb", "1"]), ("t.csv:5", ["c", "2"])]


def test_rows_of_another_width_are_dropped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,1\nb\nc,3,4\nd,5\n")
    report = ReadReport()
    assert [row[0] for _, row in read_rows(Source(tmp_path / "t.csv"), report, ["id", "size"])] == ["a", "d"]
    assert report.rows == 4
    assert report.dropped == {"with a wrong number of fields": 2}
    assert report.details[0] == f"{tmp_path}/t.csv:2: dropped, with a wrong number of fields: 1"


def test_a_quote_that_never_closes_is_an_error_and_no_hang(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('a,1\nb,"2\n' + "c,3\n" * 100_000)
    with pytest.raises(TraceError, match=r"t\.csv:2: invalid CSV"):
        fields(Source(tmp_path / "t.csv"), "id size")


@pytest.mark.family("formats")
@pytest.mark.parametrize("name", ["alibaba2017", "alibaba2018"])
def test_the_task_table_is_found_in_an_archive_of_all_tables(samples: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "batch_instance.csv"
    other.write_text("1,2,3,4,5,Terminated,7,8\n")
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as tar:
        tar.add(other, "trace/batch_instance.csv")
        tar.add(samples / name / "batch_task.csv", "trace/batch_task.csv")
    alone = open_trace(samples / name / "batch_task.csv", name)
    together = open_trace(tmp_path / "all.tar.gz", name)
    assert list(together.jobs()) == list(alone.jobs())
    assert together.report.rows == alone.report.rows


@pytest.mark.family("formats")
def test_the_machines_are_found_in_an_archive_beside_the_tasks(samples: Path, tmp_path: Path) -> None:
    for table in ("batch_task", "machine_meta"):
        with tarfile.open(tmp_path / f"{table}.tar.gz", "w:gz") as tar:
            tar.add(samples / "alibaba2018" / f"{table}.csv", f"{table}.csv")
    trace = open_trace(tmp_path / "batch_task.tar.gz", "alibaba2018")
    assert (
        trace.cluster() == open_trace(samples / "alibaba2018" / "batch_task.csv", "alibaba2018").cluster() is not None
    )


def test_a_header_as_long_as_a_file_is_cut_off_in_the_message(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"id,{'x' * 70_000}\n1,2\n")
    with pytest.raises(TraceError, match=r"a\.csv:1: the header lacks 'size'; it has id, x+ \.\.\.$") as caught:
        list(read_rows(Source(tmp_path / "a.csv"), ReadReport(), ["id", "size"], header=True))
    assert len(str(caught.value)) < 1000


def test_text_that_is_not_utf8_in_damaged_gzip_is_said_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"id,size\n" + b"a,1\n" * 5000 + b"\xff,2\n")[:-8] + b"\0" * 8)
    with pytest.raises(TraceError, match=r"a\.csv:\d+: (not UTF-8 text|the compressed data is damaged)"):
        list(Source(tmp_path / "a.csv").lines())
