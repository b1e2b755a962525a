"""Download published traces. Downloads are verified, and can be resumed after an interruption. A
file gets its final name only when it is complete.

A file is downloaded to ``NAME.part``. ``NAME.part.version`` contains the text by which the server
identifies the content (such as an ETag). A download is resumed only if two versions cannot be mixed
up unnoticed: either the checksum is known, or the server is asked to continue only if it still has
that version.
"""

from __future__ import annotations

import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path

import dagsim
from dagsim.errors import FetchError
from dagsim.traces.catalogue import PublishedTrace, Remote

WatchDownload = Callable[[str, int, int | None], None]
"""A progress callback, which receives the file's name, the number of bytes present, and the total
if it is known.
"""

_CHUNK = 1 << 18
_SPARE = 1 << 20  # number of bytes to leave free on the disk


@dataclass(frozen=True, slots=True)
class Fetched:
    """A complete file at its final path."""

    path: Path
    bytes: int
    sha256: str
    verified: bool  # True if the file was compared with a published checksum
    downloaded: bool  # False if the file was already present


def fetch(trace: PublishedTrace, into: Path, watch: WatchDownload | None = None) -> tuple[Fetched, ...]:
    """Fetch all files of ``trace`` into the folder ``into``. Files that are already present are
    only verified.

    Raises:
        FetchError: A file cannot be downloaded, or differs from the published file. The downloaded
            part is kept, so that the download can be resumed.
    """
    if not trace.files:
        raise FetchError(f"the trace is not published as a single file, so download it by hand from {trace.page}")
    return tuple([fetch_file(file, into / file.name, watch) for file in trace.files])


def fetch_file(file: Remote, to: Path, watch: WatchDownload | None = None) -> Fetched:
    """Download one ``file`` to the path ``to``.

    Raises:
        FetchError: As in ``fetch``.
        KeyboardInterrupt: The user stopped the download. The downloaded part is kept.
    """
    try:
        if to.exists():
            return _checked(file, to, to, downloaded=False)
        to.parent.mkdir(parents=True, exist_ok=True)
        part = _beside(to, ".part")
        _download(file, part, watch)
        fetched = _checked(file, part, to, downloaded=True)
        os.replace(part, to)
        _beside(part, ".version").unlink(missing_ok=True)
    except OSError as error:
        raise FetchError(f"{to}: cannot be written ({error.strerror or error}); the downloaded part is kept") from None
    return fetched


def _download(file: Remote, part: Path, watch: WatchDownload | None) -> None:
    """Download the bytes that ``part`` does not contain yet."""
    version = _beside(part, ".version")
    have = part.stat().st_size if part.exists() else 0
    kept = version.read_text(encoding="utf-8") if version.exists() else ""
    if not (file.sha256 or kept):
        have = 0
    if have and have == file.bytes:
        return
    with ask(file.url, have, kept) as answer:
        if answer.complete:
            return
        total = answer.total
        if total is not None and file.bytes is not None and total != file.bytes:
            raise FetchError(
                f"{file.url}: the publisher has replaced the file, which now has {total:,} bytes instead of "
                f"{file.bytes:,}"
            )
        if answer.start == 0:
            version.write_text(answer.version, encoding="utf-8")
        _make_room(part, None if total is None else total - answer.start)
        done = _append(answer, part, lambda done: watch(part.stem, done, total) if watch else None)
    if answer.cut or (total is not None and done < total):
        of = "" if total is None else f" of {total:,}"
        raise FetchError(
            f"{file.url}: the connection was cut after {done:,}{of} bytes; run the same command again to resume"
        )


def _append(answer: Answer, part: Path, watch: Callable[[int], None]) -> int:
    """Write the bytes from ``answer.start`` onwards to ``part``. Return the resulting length of
    ``part``, even if the file is still incomplete.
    """
    done = answer.start
    with part.open("ab" if answer.start else "wb") as out:
        while chunk := answer.read(_CHUNK):
            out.write(chunk)
            done += len(chunk)
            watch(done)
    return done


def _checked(file: Remote, path: Path, to: Path, *, downloaded: bool) -> Fetched:
    """Compare ``path`` with the published size and checksum. If a download differs, rename it to
    ``NAME.wrong``.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        sha256 = file_digest(stream, "sha256").hexdigest()
    wrong = ""
    if file.sha256 not in (None, sha256):
        wrong = f"its SHA-256 is {sha256}, the published one {file.sha256}"
    elif file.bytes not in (None, size):
        wrong = f"it has {size:,} bytes, the published one {file.bytes:,}"
    if wrong and not downloaded:
        raise FetchError(f"{to}: another file with this name exists: {wrong}; move it away to fetch the trace")
    if wrong:
        aside = _beside(to, ".wrong")
        os.replace(path, aside)
        _beside(path, ".version").unlink(missing_ok=True)
        raise FetchError(
            f"{file.url}: the downloaded file differs from the published one: {wrong}; it is kept as {aside}"
        )
    return Fetched(to, size, sha256, verified=file.sha256 is not None, downloaded=downloaded)


def _make_room(part: Path, needed: int | None) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed is not None and needed + _SPARE > free:
        raise FetchError(f"{part.parent}: {needed:,} more bytes are needed, but only {free:,} are free on the disk")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


_TIMEOUT_S = 60.0
_LOOKED_AT = 1024


@dataclass(slots=True)
class Answer:
    """A server's answer to a request, with the bytes from ``start`` onwards. ``total`` is the size
    of the whole file, if the server states it.
    """

    start: int
    total: int | None
    # a strong ETag or a date that identifies the content; empty if the server gives neither
    version: str
    complete: bool = False  # True if there are no bytes beyond ``start``
    cut: bool = False  # True if the connection broke while reading
    _first: bytes = b""
    _response: HTTPResponse | None = None

    def read(self, size: int) -> bytes:
        """Read at most ``size`` bytes. The result is empty at the end, or if the connection is
        ``cut``.
        """
        if self._first:
            first, self._first = self._first, b""
            return first
        if self._response is None or self.cut:
            return b""
        try:
            return self._response.read1(size)
        except IncompleteRead as error:
            self.cut = True
            return error.partial
        except (OSError, HTTPException):
            self.cut = True
            return b""


@contextmanager
def ask(url: str, start: int = 0, version: str = "") -> Iterator[Answer]:
    """Request ``url`` from byte ``start`` onwards. If ``version`` is given, ask the server to
    continue only if it still has that version.

    If the server cannot send a part, or now has a different version, it sends the whole file and
    ``Answer.start`` is 0.

    Raises:
        FetchError: The server does not answer, refuses, or sends a web page or a Git LFS pointer
            instead of data.
    """
    headers = {"User-Agent": f"dagsim/{dagsim.__version__}"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if version:
            headers["If-Range"] = version
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            whole = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
            if whole and int(whole[1]) == start:
                yield Answer(start, start, version, complete=True)
                return
            # the partial file is longer than the remote file, so the content differs
            with ask(url) as answer:
                yield answer
            return
        raise FetchError(f"{url}: {_refusal(error)}") from None
    except (urllib.error.URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise FetchError(f"{url}: the server cannot be reached ({reason}); check the network connection") from None
    with response:
        yield _answer(url, start, response)


def _answer(url: str, asked: int, response: HTTPResponse) -> Answer:
    start, total = 0, response.length
    if response.status == HTTPStatus.PARTIAL_CONTENT:
        sent = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if sent is None or int(sent[1]) != asked:
            raise FetchError(f"{url}: the server did not send the part that starts at byte {asked:,}")
        start, total = asked, None if sent[2] == "*" else int(sent[2])
    answer = Answer(start, total, _version(response), _response=response)
    if start == 0:
        answer._first = answer.read(_LOOKED_AT)
        _refuse_pages(url, answer._first, response.headers.get_content_type())
    return answer


def _version(response: HTTPResponse) -> str:
    tag: str = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")


def _refuse_pages(url: str, start: bytes, type_: str) -> None:
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if type_ == "text/html" or text.startswith((b"<!doctype html", b"<html")):
        raise FetchError(
            f"{url}: the server sent a web page (perhaps a login or an error) instead of data; nothing was saved"
        )
    if text.startswith(b"version https://git-lfs"):
        raise FetchError(f"{url}: the server sent a Git LFS pointer instead of the file itself; nothing was saved")


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return f"the publisher no longer has it there ({error.code} {error.reason})"
    return f"the server refuses ({error.code} {error.reason}); try again later"
