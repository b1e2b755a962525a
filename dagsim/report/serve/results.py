"""The run folders below a folder: their progress, and which of them are dead."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dagsim.agents.config import algorithm_name
from dagsim.errors import DagsimError, InputError, RunFolderError
from dagsim.experiment.scenario import workload_label
from dagsim.experiment.store import Store
from dagsim.experiment.training.log import read_log
from dagsim.report.grid import number

__all__ = ["Results", "RunState"]

_DEEPEST = 3
"""Greatest depth of run folders below the served folder."""
_FRESH_S = 0.5
"""How long a look at the folders stays valid."""
_TOLD_BY = ("manifest.json", "status.json", "runs.jsonl", "progress.csv", "failures.jsonl", "cells")
"""Files whose time and size show whether a folder has changed."""

Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RunState:
    """One run folder in the list. ``id`` is its path below the folder that is served."""

    id: str
    command: str
    created: str
    workload: str
    policies: tuple[str, ...]
    seeds: int
    state: str
    """``running``, ``done``, ``failed``, ``interrupted``, ``dead`` (killed without a word) or ``unreadable``."""
    done: int
    """Finished runs; of a training its iterations, of a sweep its cells."""
    total: int
    """How many there are to be; 0 where that is not known."""
    unit: str
    result: str
    """The best so far, in words."""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)


class Results:
    """The run folders below ``root``, as the disk holds them when they are asked for.

    A run is named by its id, which is looked up among the run folders: no text from outside becomes a path.
    Links are not followed.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InputError(f"{root}: no such folder; dagsim serve takes the folder that run folders lie in")
        self.root = root
        self._guard = threading.Lock()
        self._known: dict[str, tuple[Stamp, RunState]] = {}
        self._folders: dict[str, tuple[tuple[int, int], Store]] = {}
        self._looked_s = -1.0

    def states(self) -> list[RunState]:
        """All runs, the newest first."""
        with self._guard:
            if time.monotonic() - self._looked_s > _FRESH_S:
                self._look()
            states = [state for _, state in self._known.values()]
        return sorted(states, key=lambda each: (each.created, each.id), reverse=True)

    def state(self, id_: str) -> RunState:
        """One run.

        Raises:
            InputError: There is none of that id.
        """
        for state in self.states():
            if state.id == id_:
                return state
        raise InputError(f"there is no run folder {id_!r}")

    def folder(self, id_: str) -> Store:
        """The run folder, to be read only.

        Raises:
            InputError: There is none of that id.
            RunFolderError: It cannot be read, or holds a link that leads out of it.
        """
        path = dict(_run_folders(self.root)).get(id_)
        if path is None:
            raise InputError(f"there is no run folder {id_!r}")
        _refuse_links(path)
        return Store.read(path)

    def stamp(self, id_: str) -> Stamp:
        """A value that stays equal while the run folder does not change.

        Raises:
            InputError: There is none of that id.
        """
        path = dict(_run_folders(self.root)).get(id_)
        if path is None:
            raise InputError(f"there is no run folder {id_!r}")
        return _stamp(path)

    def _look(self) -> None:
        runs = {}
        for id_, path in _run_folders(self.root):
            stamp, before = _stamp(path), self._known.get(id_)
            if before is not None and before[0] == stamp and before[1].state != "running":
                runs[id_] = before
            else:
                runs[id_] = (stamp, self._state(id_, path))
        self._known, self._looked_s = runs, time.monotonic()

    def _state(self, id_: str, path: Path) -> RunState:
        try:
            folder = self._opened(id_, path)
            facts = folder.manifest
            done, total, unit, result = _progress(folder)
            return RunState(
                id_,
                str(facts["command"]),
                str(facts["created"]),
                workload_label(folder.config),
                tuple(map(str, facts.get("policies") or _trained(folder))),
                len(facts["seeds"]),
                "dead" if folder.dead else folder.state,
                done,
                total,
                unit,
                result,
                _last_word(path),
            )
        except (DagsimError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return RunState(id_, "", "", "", (), 0, "unreadable", 0, 0, "", "", str(error))

    def _opened(self, id_: str, path: Path) -> Store:
        """The folder, read again only where its manifest has changed."""
        stamp, before = _stamp(path)[0], self._folders.get(id_)
        if before is None or before[0] != stamp:
            _refuse_links(path)
            before = self._folders[id_] = stamp, Store.read(path)
        return before[1]


def _run_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Id and path of every run folder below ``root``; nothing is looked for inside one, and no link is followed."""
    pending = [(root, 0)]
    while pending:
        path, depth = pending.pop()
        if (path / "manifest.json").is_file():
            yield ("." if path == root else path.relative_to(root).as_posix()), path
        elif depth < _DEEPEST:
            with suppress(OSError), os.scandir(path) as entries:
                pending += [
                    (Path(entry.path), depth + 1)
                    for entry in entries
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                ]


def _refuse_links(path: Path) -> None:
    """Raise where a file of the run folder is a link: it could show what lies elsewhere."""
    for folder in (path, path / "schedules", path / "cells"):
        if folder.is_symlink():
            raise RunFolderError(f"{folder}: is a link, which dagsim serve does not follow")
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise RunFolderError(f"{entry.path}: is a link, which dagsim serve does not follow")


def _stamp(path: Path) -> Stamp:
    """Time and size of the files that show the progress of a run."""
    stamps = []
    for name in _TOLD_BY:
        try:
            facts = (path / name).stat()
            stamps.append((facts.st_mtime_ns, facts.st_size))
        except OSError:
            stamps.append((0, 0))
    return tuple(stamps)


def _progress(folder: Store) -> tuple[int, int, str, str]:
    """Finished and planned runs (or iterations, or cells), their unit, and the best so far."""
    facts, path = folder.manifest, folder.path
    if facts["command"] == "train":
        rows = read_log(path) if (path / "progress.csv").is_file() else []
        ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
        planned = 0 if folder.config.train is None else folder.config.train.iterations
        return len(rows), planned, "iterations", f"ratio {min(ratios):.3f}" if ratios else ""
    if (path / "cells").is_dir():
        done = sum(1 for _ in (path / "cells").glob("*.json"))
        return done, int((facts.get("plan") or {}).get("sweep", {}).get("cells", 0)), "cells", ""
    lines = folder.lines()
    total = max(len(facts["seeds"]) * len(facts.get("policies") or ("",)), len(lines))
    return len(lines), total, "runs", _best(folder)


def _trained(folder: Store) -> tuple[str, ...]:
    """The algorithm of a training, or the one policy."""
    if folder.manifest["command"] == "train" and folder.config.train is not None:
        return (algorithm_name(folder.config.train.algorithm),)
    return (folder.config.policy,)


def _last_word(path: Path) -> str:
    """The error that the run ended with, if any."""
    return str(json.loads((path / "status.json").read_text(encoding="utf-8")).get("error") or "")


def _best(folder: Store) -> str:
    """The policy with the lowest mean completion time over its seeds so far."""
    times: dict[str, list[float]] = {}
    for line in folder.lines():
        value = line.metrics.get("jct_s.mean")
        times.setdefault(line.policy, []).append(float("nan") if value is None else float(value))
    means = {policy: sum(values) / len(values) for policy, values in times.items()}
    known = {policy: mean for policy, mean in means.items() if mean == mean}
    if not known:
        return ""
    best = min(known, key=lambda policy: known[policy])
    return f"{best}: mean JCT {number(known[best])} s"
