"""The replay of a training on disk: each checkpoint adds a file, so that none is written twice.

A checkpoint names the transitions that belong to it. Files behind them (the training was killed before that checkpoint
was there) are written again, files before them are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from typing import Any

from dagsim.agents.checkpoint import read_plain, write_plain
from dagsim.agents.replay import ReplayBuffer
from dagsim.errors import RunFolderError

__all__ = ["ReplayArchive"]


class ReplayArchive:
    """The files ``NNNNNNNNN.pt`` in a folder of their own: the transitions from that number on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = 0
        """The number of the first transition that is in no file."""

    def write(self, replay: ReplayBuffer) -> None:
        """Add what came since the last time; goes before the checkpoint."""
        if replay.span[1] > self._written:
            self._folder.mkdir(exist_ok=True)
            added = replay.since(self._written)
            write_plain(self._folder / f"{added['first']:09d}.pt", added)
            self._written = replay.span[1]

    def prune(self, replay: ReplayBuffer) -> None:
        """Remove the files whose transitions are all gone; goes behind the checkpoint."""
        for path, following in pairwise(self._paths()):
            if int(following.stem) <= replay.span[0]:
                path.unlink()

    def read(self, replay: ReplayBuffer, state: Mapping[str, Any]) -> None:
        """Fill an empty buffer as it was when ``state`` was saved.

        Raises:
            RunFolderError: A file is missing or damaged.
        """
        first, after = state["span"]
        paths = [path for path in self._paths() if int(path.stem) < after]
        ends = [int(path.stem) for path in paths[1:]] + [after] * bool(paths)  # before the first iteration: no files
        needed = [path for path, end in zip(paths, ends, strict=True) if end > first]
        try:
            replay.load(state, map(read_plain, needed))
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{self._folder}: the replay is damaged ({error})") from None
        self._written = after

    def remove(self) -> None:
        """Nobody needs it any more."""
        rmtree(self._folder, ignore_errors=True)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("[0-9]*.pt"))
