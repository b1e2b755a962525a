"""Published traces, downloaded: resumed where they were cut off, verified, and in place only when whole.

A file grows as ``NAME.part``, with what the server says identifies its content in ``NAME.part.version``. A part is
resumed only where a mixture of two contents would be noticed: the checksum is known, or the server is asked to send the
rest of that version only.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from dagsim.errors import FetchError
from dagsim.traces.download import Answer, ask
from dagsim.traces.remote import PublishedTrace, Remote

__all__ = ["Fetched", "Watch", "fetch", "fetch_file"]

Watch = Callable[[str, int, int | None], None]
"""Told a file's name, the bytes that are there, and how many it will have, if that is known."""

_CHUNK = 1 << 18
_SPARE = 1 << 20  # bytes left free on the disk


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that is whole and in place."""

    path: Path
    bytes: int
    sha256: str
    verified: bool  # against a published checksum
    downloaded: bool  # False if it was there already


def fetch(trace: PublishedTrace, into: Path, watch: Watch | None = None) -> tuple[Fetched, ...]:
    """All files of ``trace``, below the folder ``into``; those that are there already are verified, not fetched again.

    Raises:
        FetchError: A file cannot be had, or is not what was published; what came of it is kept to be resumed.
    """
    if not trace.files:
        raise FetchError(f"published as no single file, so it has to be fetched by hand: {trace.page}")
    return tuple([fetch_file(file, into / file.name, watch) for file in trace.files])


def fetch_file(file: Remote, to: Path, watch: Watch | None = None) -> Fetched:
    """The one ``file``, as ``to``.

    Raises:
        FetchError: As above.
        KeyboardInterrupt: The user stopped it; the part is kept.
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
        raise FetchError(f"{to}: cannot be written ({error.strerror or error}); what there is of it is kept") from None
    return fetched


def _download(file: Remote, part: Path, watch: Watch | None) -> None:
    """Bring ``part`` to its full length, from where it stands."""
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
                f"{file.url}: the publisher's file now has {total:,} bytes, not {file.bytes:,}; it has been replaced"
            )
        if answer.start == 0:
            version.write_text(answer.version, encoding="utf-8")
        _make_room(part, None if total is None else total - answer.start)
        done = _append(answer, part, lambda done: watch(part.stem, done, total) if watch else None)
    if answer.cut or (total is not None and done < total):
        of = "" if total is None else f" of {total:,}"
        raise FetchError(f"{file.url}: the connection was cut after {done:,}{of} bytes; the same command resumes there")


def _append(answer: Answer, part: Path, watch: Callable[[int], None]) -> int:
    """Write what comes from ``answer.start`` on; how long ``part`` then is, whole or not."""
    done = answer.start
    with part.open("ab" if answer.start else "wb") as out:
        while chunk := answer.read(_CHUNK):
            out.write(chunk)
            done += len(chunk)
            watch(done)
    return done


def _checked(file: Remote, path: Path, to: Path, *, downloaded: bool) -> Fetched:
    """``path`` as what was published; a download that is something else is set aside as ``NAME.wrong``."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        sha256 = file_digest(stream, "sha256").hexdigest()
    wrong = ""
    if file.sha256 not in (None, sha256):
        wrong = f"its SHA-256 is {sha256}, the published one {file.sha256}"
    elif file.bytes not in (None, size):
        wrong = f"it has {size:,} bytes, the published one {file.bytes:,}"
    if wrong and not downloaded:
        raise FetchError(f"{to}: another file of this name is there: {wrong}; move it away to fetch the trace")
    if wrong:
        aside = _beside(to, ".wrong")
        os.replace(path, aside)
        _beside(path, ".version").unlink(missing_ok=True)
        raise FetchError(f"{file.url}: not the file that was published: {wrong}; it is kept as {aside}")
    return Fetched(to, size, sha256, verified=file.sha256 is not None, downloaded=downloaded)


def _make_room(part: Path, needed: int | None) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed is not None and needed + _SPARE > free:
        raise FetchError(f"{part.parent}: {needed:,} bytes are still to come, but the disk has only {free:,} free")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
