"""One question to a server: the bytes of a file from a place on; and what is wrong with the answer, in plain words."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, IncompleteRead

import dagsim
from dagsim.errors import FetchError

__all__ = ["Answer", "ask"]

_TIMEOUT_S = 60.0
_LOOKED_AT = 1024


@dataclass(slots=True)
class Answer:
    """The bytes from ``start`` on, of ``total`` if the server says so."""

    start: int
    total: int | None
    version: str  # what identifies the content: a strong ETag or a date; empty if the server gives neither
    complete: bool = False  # there is nothing from ``start`` on
    cut: bool = False  # the connection broke while the bytes were read
    _first: bytes = b""
    _response: HTTPResponse | None = None

    def read(self, size: int) -> bytes:
        """The next bytes, ``size`` at most; none at the end, and none where the connection is ``cut``."""
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
    """Ask for ``url`` from byte ``start`` on, of that ``version`` if it is given.

    A server that cannot send a part, or has another version now, is let send the whole: ``Answer.start`` is then 0.

    Raises:
        FetchError: No answer, one that refuses, or one that is a web page or a Git LFS pointer instead of data.
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
            with ask(url) as answer:  # the part is longer than the file: it is of something else
                yield answer
            return
        raise FetchError(f"{url}: {_refusal(error)}") from None
    except (urllib.error.URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise FetchError(f"{url}: the server cannot be reached ({reason}); is there a network?") from None
    with response:
        yield _answer(url, start, response)


def _answer(url: str, asked: int, response: HTTPResponse) -> Answer:
    start, total = 0, response.length
    if response.status == HTTPStatus.PARTIAL_CONTENT:
        sent = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if sent is None or int(sent[1]) != asked:
            raise FetchError(f"{url}: the server sent another part than the one from byte {asked:,} on")
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
        raise FetchError(f"{url}: the server sent a web page, not data (a login, an error or a move); nothing is kept")
    if text.startswith(b"version https://git-lfs"):
        raise FetchError(f"{url}: the server sent a Git LFS pointer instead of the file itself; nothing is kept")


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return f"the publisher no longer has it there ({error.code} {error.reason})"
    return f"the server refuses ({error.code} {error.reason}); perhaps it answers later"
