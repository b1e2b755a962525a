"""The offer of a publisher: a trace, its terms, and its files on a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

__all__ = ["PublishedTrace", "Remote"]


@dataclass(frozen=True, slots=True)
class Remote:
    """A file on a publisher's server; its checksum is SHA-256 in hexadecimal digits."""

    url: str
    bytes: int | None = None
    sha256: str | None = None
    path: str = ""  # below the trace's own folder, where it is not simply the last part of the URL

    @property
    def name(self) -> str:
        """The place of the file, below the trace's own folder."""
        return self.path or PurePosixPath(unquote(urlsplit(self.url).path)).name


@dataclass(frozen=True, slots=True)
class PublishedTrace:
    """A trace as its publisher ships it; one without files can only be had by hand, from its ``page``."""

    title: str
    format: str
    page: str
    terms: str
    files: tuple[Remote, ...] = ()
    opened: str = ""  # what is replayed, below the trace's own folder; empty for the folder itself
    after: str = ""  # what is left to be done by hand

    @property
    def bytes(self) -> int | None:
        """The bytes to download; ``None`` if the size of any file is not known."""
        sizes = [file.bytes for file in self.files]
        return None if not sizes or None in sizes else sum(size for size in sizes if size is not None)
