"""Traces fetched from a publisher on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.command_line import fine, invoke
from traces.server import Publisher, publishing

from dagsim.errors import FetchError, InputError, UnknownName
from dagsim.traces import READERS
from dagsim.traces import fetch as fetching
from dagsim.traces.catalogue import CATALOGUE, PublishedTrace, Remote, published_trace
from dagsim.traces.fetch import fetch, fetch_file

CONTENT = b"".join(b"%d,1,2.5,T4\n" % number for number in range(60_000))  # 0.9 MB: several reads
HALF = len(CONTENT) // 2


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with publishing(Publisher(CONTENT)) as running:
        yield running


def remote(publisher: Publisher, content: bytes = CONTENT) -> Remote:
    return Remote(publisher.url(), len(content), sha256(content).hexdigest())


def unverified(publisher: Publisher) -> Remote:
    return Remote(publisher.url())


def part_of(to: Path, content: bytes, version: str = "") -> Path:
    part = to.with_name(to.name + ".part")
    part.write_bytes(content)
    if version:
        part.with_name(part.name + ".version").write_text(version)
    return part


def assert_alone(path: Path) -> None:
    assert list(path.parent.iterdir()) == [path]


def test_a_whole_file_is_verified_and_in_place(tmp_path: Path, publisher: Publisher) -> None:
    steps: list[Any] = []
    to = tmp_path / "new" / "trace.csv"
    got = fetch_file(remote(publisher), to, lambda *step: steps.append(step))
    assert (got.bytes, got.verified, got.downloaded) == (len(CONTENT), True, True)
    assert got.sha256 == sha256(CONTENT).hexdigest()
    assert to.read_bytes() == CONTENT
    assert_alone(to)
    assert steps[-1] == ("trace.csv", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)


def test_without_a_published_checksum_nothing_is_claimed(tmp_path: Path, publisher: Publisher) -> None:
    got = fetch_file(unverified(publisher), tmp_path / "trace.csv")
    assert not got.verified
    assert got.sha256 == sha256(CONTENT).hexdigest()


def test_a_file_that_is_there_is_not_fetched_again(tmp_path: Path, publisher: Publisher) -> None:
    for file in (remote(publisher), unverified(publisher)):
        fetch_file(file, tmp_path / "trace.csv")
        assert not fetch_file(file, tmp_path / "trace.csv").downloaded
    assert len(publisher.asked) == 1


def test_another_file_of_that_name_is_left_alone(tmp_path: Path, publisher: Publisher) -> None:
    (tmp_path / "trace.csv").write_bytes(b"mine")
    with pytest.raises(FetchError, match="another file with this name exists"):
        fetch_file(remote(publisher), tmp_path / "trace.csv")
    assert (tmp_path / "trace.csv").read_bytes() == b"mine"
    assert not publisher.asked


def test_a_part_is_resumed(tmp_path: Path, publisher: Publisher) -> None:
    to = tmp_path / "trace.csv"
    part_of(to, CONTENT[:HALF])
    fetch_file(remote(publisher), to)
    assert to.read_bytes() == CONTENT
    assert publisher.asked == [f"bytes={HALF}-"]
    assert_alone(to)


def test_a_server_without_ranges_sends_the_whole(tmp_path: Path, publisher: Publisher) -> None:
    publisher.ranges = False
    to = tmp_path / "trace.csv"
    part_of(to, b"x" * HALF)
    fetch_file(remote(publisher), to)
    assert to.read_bytes() == CONTENT
    assert publisher.asked == [f"bytes={HALF}-"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_cut_connection_keeps_the_part_for_the_next_time(tmp_path: Path, publisher: Publisher, chunked: bool) -> None:
    publisher.cut_after, publisher.chunked = HALF, chunked
    to = tmp_path / "trace.csv"
    with pytest.raises(FetchError, match=r"connection was cut after [\d,]+.* run the same command again to resume"):
        fetch_file(remote(publisher), to)
    part = tmp_path / "trace.csv.part"
    have = part.stat().st_size
    assert part.read_bytes() == CONTENT[:have]
    assert 0 < have <= HALF
    assert not to.exists()
    publisher.cut_after = None
    fetch_file(remote(publisher), to)
    assert to.read_bytes() == CONTENT
    assert publisher.asked == ["", f"bytes={have}-"]


def test_without_a_checksum_only_the_same_version_is_resumed(tmp_path: Path, publisher: Publisher) -> None:
    to = tmp_path / "trace.csv"
    publisher.etag = '"two"'
    part_of(to, b"x" * HALF, '"one"')
    fetch_file(unverified(publisher), to)
    assert to.read_bytes() == CONTENT  # the server had another version and sent it whole
    to.unlink()
    part_of(to, CONTENT[:HALF], '"two"')
    fetch_file(unverified(publisher), to)
    assert to.read_bytes() == CONTENT
    assert publisher.asked == [f"bytes={HALF}-"] * 2
    assert_alone(to)


def test_without_checksum_and_version_a_part_is_not_trusted(tmp_path: Path, publisher: Publisher) -> None:
    part_of(tmp_path / "trace.csv", CONTENT[:HALF])
    fetch_file(unverified(publisher), tmp_path / "trace.csv")
    assert publisher.asked == [""]


def test_a_part_that_is_whole_already_is_only_renamed(tmp_path: Path, publisher: Publisher) -> None:
    to = tmp_path / "trace.csv"
    for file in (remote(publisher), Remote(publisher.url(), sha256=sha256(CONTENT).hexdigest())):
        part_of(to, CONTENT)
        fetch_file(file, to)
        assert to.read_bytes() == CONTENT
        to.unlink()
    assert publisher.asked == [f"bytes={len(CONTENT)}-"]  # 416, which says the same length


def test_a_part_that_is_too_long_is_begun_anew(tmp_path: Path, publisher: Publisher) -> None:
    to = tmp_path / "trace.csv"
    part_of(to, CONTENT + b"more")
    fetch_file(remote(publisher), to)
    assert to.read_bytes() == CONTENT
    assert publisher.asked == [f"bytes={len(CONTENT) + 4}-", ""]


def test_another_part_than_the_one_asked_for_is_refused(tmp_path: Path, publisher: Publisher) -> None:
    publisher.lie_about_start = True
    part_of(tmp_path / "trace.csv", CONTENT[:HALF])
    with pytest.raises(FetchError, match="did not send the part that starts at byte"):
        fetch_file(remote(publisher), tmp_path / "trace.csv")


def test_a_wrong_checksum_sets_the_file_aside(tmp_path: Path, publisher: Publisher) -> None:
    publisher.content = CONTENT[:-1] + b"!"
    with pytest.raises(
        FetchError, match=r"the downloaded file differs from the published one: its SHA-256 is .*trace\.csv\.wrong"
    ):
        fetch_file(remote(publisher), tmp_path / "trace.csv")
    assert_alone(tmp_path / "trace.csv.wrong")


def test_a_wrong_part_is_not_resumed_twice(tmp_path: Path, publisher: Publisher) -> None:
    to = tmp_path / "trace.csv"
    part_of(to, b"x" * HALF)
    with pytest.raises(FetchError, match="differs from the published one"):
        fetch_file(remote(publisher), to)
    fetch_file(remote(publisher), to)
    assert to.read_bytes() == CONTENT


def test_another_length_is_refused_before_it_is_downloaded(tmp_path: Path, publisher: Publisher) -> None:
    publisher.content = CONTENT * 2
    with pytest.raises(FetchError, match=r"now has [\d,]+ bytes instead of"):
        fetch_file(remote(publisher), tmp_path / "trace.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("status", "message"), [(404, "no longer has it there"), (410, "no longer"), (503, "refuses")])
def test_a_refusal_is_said_in_words(tmp_path: Path, publisher: Publisher, status: int, message: str) -> None:
    publisher.status = status
    with pytest.raises(FetchError, match=rf"{message}.*{status}"):
        fetch_file(remote(publisher), tmp_path / "trace.csv")


@pytest.mark.parametrize(
    ("content", "type_", "message"),
    [
        (b"\n <!DOCTYPE html><html>log in</html>", "application/octet-stream", "a web page"),
        (b"<title>moved</title>", "text/html; charset=utf-8", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "text/plain", "Git LFS pointer"),
    ],
)
def test_a_page_instead_of_data_is_refused(
    tmp_path: Path, publisher: Publisher, content: bytes, type_: str, message: str
) -> None:
    publisher.content, publisher.type_ = content, type_
    with pytest.raises(FetchError, match=message):
        fetch_file(unverified(publisher), tmp_path / "trace.csv")
    assert not list(tmp_path.iterdir())


def test_no_network_is_said_in_words(tmp_path: Path) -> None:
    with publishing(Publisher()) as gone:
        file = Remote(gone.url())
    with pytest.raises(FetchError, match="cannot be reached"):
        fetch_file(file, tmp_path / "trace.csv")


def test_a_full_disk_is_said_before_and_while_writing(
    tmp_path: Path, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace.csv.part").symlink_to("/dev/full")
    with pytest.raises(FetchError, match=r"cannot be written \(No space left"):
        fetch_file(remote(publisher), tmp_path / "trace.csv")

    class Full(NamedTuple):
        free: int = 1000

    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _: Full())
    with pytest.raises(FetchError, match="only 1,000 are free on the disk"):
        fetch_file(remote(publisher), tmp_path / "other.csv")


def test_what_cannot_be_fetched_says_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"by hand from http://www\.kasahara"):
        fetch(published_trace("stg"), tmp_path)


def test_an_unknown_trace_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'ctc-sp2'"):
        published_trace("ctc-sp")


@pytest.mark.family("formats", "ramp", "slurm")
def test_the_table_holds() -> None:
    for name, trace in CATALOGUE.items():
        assert trace.format in READERS, name
        names = [file.name for file in trace.files]
        assert len(set(names)) == len(names)
        assert not trace.opened or trace.opened in names
        for file in trace.files:
            assert file.url.startswith(("https://", "http://"))
            assert not Path(file.name).is_absolute()
            assert ".." not in file.name
            assert file.sha256 is None or (len(file.sha256) == 64 and int(file.sha256, 16))
    assert issubclass(FetchError, InputError)


class TestCommand:
    """``dagsim trace fetch``, with a table of its own."""

    @pytest.fixture(autouse=True)
    def _table(self, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
        files = (remote(publisher), Remote(publisher.url("more.csv"), path="parts/more.csv"))
        trace = PublishedTrace("A trace", "plain", "http://a.page", "CC0", files, "trace.csv")
        monkeypatch.setitem(CATALOGUE, "made", trace)

    def test_it_says_what_was_verified_and_what_comes_next(self, tmp_path: Path) -> None:
        shown = fine("trace", "fetch", "made", "--to", tmp_path)
        first, second, terms, further = shown.stdout.splitlines()
        assert first.endswith(f"trace.csv: {len(CONTENT):,} bytes, fetched, SHA-256 as published")
        assert second.endswith(f"not verified, no checksum is published: SHA-256 {sha256(CONTENT).hexdigest()}")
        assert terms == "terms: CC0 (http://a.page)"
        assert further == f"next: dagsim replay --trace {tmp_path}/made/trace.csv --format plain"
        assert (tmp_path / "made" / "parts" / "more.csv").read_bytes() == CONTENT

    def test_json(self, tmp_path: Path) -> None:
        shown = invoke("trace", "fetch", "made", "--to", tmp_path, "--json")
        answer = json.loads(shown.stdout)
        assert answer["path"] == f"{tmp_path}/made/trace.csv"
        assert [file["verified"] for file in answer["files"]] == [True, False]

    def test_an_error_ends_with_2(self, tmp_path: Path, publisher: Publisher) -> None:
        publisher.status = 404
        shown = invoke("trace", "fetch", "made", "--to", tmp_path)
        assert shown.exit_code == 2
        assert shown.stderr.startswith("error: http://127.0.0.1")

    def test_ctrl_c_keeps_the_part(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        take = fetching.Answer.read
        left = [2]  # reads before the user stops it

        def read(answer: Any, size: int) -> bytes:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return take(answer, size)

        monkeypatch.setattr(fetching.Answer, "read", read)
        shown = invoke("trace", "fetch", "made", "--to", tmp_path)
        assert shown.exit_code == 130
        assert "run the same command again to resume" in shown.stderr
        part = tmp_path / "made" / "trace.csv.part"
        assert part.read_bytes() == CONTENT[: part.stat().st_size] != b""

    def test_the_list_names_every_trace(self) -> None:
        shown = invoke("trace", "list", "--json")
        rows = {row["trace"]: row for row in json.loads(shown.stdout)}
        assert rows.keys() == CATALOGUE.keys()
        assert rows["philly"]["bytes"] == 1_055_988_361
        assert rows["stg"]["files"] == "by hand"


def test_measured_sizes_and_checksums_stay_as_they_were_measured() -> None:
    """A sum over all of them, because a wrong one refuses a file that is right."""
    measured = [
        f"{file.url} {file.bytes} {file.sha256}"
        for name in sorted(CATALOGUE)
        for file in CATALOGUE[name].files
        if file.bytes is not None or file.sha256 is not None
    ]
    assert (len(measured), sha256("\n".join(measured).encode()).hexdigest()) == (
        49,
        "7df3801444e85602c8fe4160f6e1a3f0f8a4b621d9514ac9aeed637eb1a1be0e",
    )
