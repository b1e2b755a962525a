"""The run folders below a folder: their progress, and which runs are dead."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dagsim.errors import DagsimError, InputError, RunFolderError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.scenario import workload_label
from dagsim.experiment.store import Store
from dagsim.experiment.training_log import read_log
from dagsim.files import parsed_json
from dagsim.metrics.standings import plain_mean
from dagsim.report.grid import number

_DEEPEST = 3
"""Maximum depth of run folders below the served folder."""
_FRESH_S = 0.5
"""Seconds for which a scan of the folders stays valid."""
_TOLD_BY = ("manifest.json", "status.json", "runs.jsonl", "progress.csv", "failures.jsonl", "cells")
"""Files whose modification time and size show whether a folder has changed."""

FolderStamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """One run folder in the list. ``id`` is its path below the served folder."""

    id: str
    command: str = ""
    created: str = ""
    workload: str = ""
    policies: tuple[str, ...] = ()
    seeds: int = 0
    state: str = "unreadable"
    """``running``, ``done``, ``failed``, ``interrupted``, ``dead`` (killed without a message) or
    ``unreadable``."""
    done: int = 0
    """Finished runs, iterations (of a training run) or cells (of a sweep)."""
    total: int = 0
    """Planned number of runs, iterations or cells, or 0 if unknown."""
    unit: str = ""
    result: str = ""
    """Best result so far, as text."""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON."""
        return asdict(self)


class Results:
    """The run folders below ``root``, read from disk on request.

    An id is looked up among the existing run folders, so text from a request never becomes a path.
    Links are not followed.
    """

    def __init__(self, root: Path, snapshots: Any = None) -> None:
        if not root.is_dir():
            what = "not a folder" if root.exists() else "no such folder"
            raise InputError(f"{root}: {what}; expected the folder that contains the run folders")
        self.root = root
        self.snapshots = snapshots
        """The queue whose snapshots are in the folder (``services.queue_snapshots``), or None."""
        self._guard = threading.Lock()
        self._known: dict[str, tuple[FolderStamp, ListedFolder]] = {}
        self._folders: dict[str, tuple[tuple[int, int], Store]] = {}
        self._looked_s = -1.0

    def states(self) -> list[ListedFolder]:
        """Return all runs, newest first."""
        with self._guard:
            if time.monotonic() - self._looked_s > _FRESH_S:
                self._look()
            states = [state for _, state in self._known.values()]
        if self.snapshots is not None:
            states = [state for state in states if state.id != self.snapshots.id] + [self._queue(self.snapshots)]
        return sorted(states, key=lambda state: (state.created, state.id), reverse=True)

    def state(self, id_: str) -> ListedFolder:
        """Return the state of one run.

        Raises:
            InputError: No run has that id.
        """
        for state in self.states():
            if state.id == id_:
                return state
        raise InputError(f"there is no run folder {id_!r}")

    def folder(self, id_: str) -> Store:
        """Return the run folder, for reading only.

        Raises:
            InputError: No run has that id.
            RunFolderError: The folder cannot be read, or is a link or contains one.
        """
        path = self._path(id_)
        _refuse_links(path)
        return Store.read(path)

    def stamp(self, id_: str) -> FolderStamp:
        """Return a value that changes whenever the run folder changes.

        Raises:
            InputError: No run has that id.
        """
        return _stamp(self._path(id_))

    def _path(self, id_: str) -> Path:
        path = dict(_run_folders(self.root)).get(id_)
        if path is None:
            raise InputError(f"there is no run folder {id_!r}")
        return path

    def _queue(self, snapshots: Any) -> ListedFolder:
        """Return the queue as an additional run, which never ends."""
        snapshots.look()
        latest, count = snapshots.latest, snapshots.made
        state = "unreadable" if count and latest.error and not latest.page else "running"
        policies = (snapshots.policy,)
        return ListedFolder(
            id=snapshots.id,
            command="eta",
            created=latest.instant,
            workload="queue",
            policies=policies,
            seeds=1,
            state=state,
            done=count,
            unit="forecasts",
            result=latest.summary,
            note=latest.error,
        )

    def _look(self) -> None:
        runs = {}
        for id_, path in _run_folders(self.root):
            stamp, before = _stamp(path), self._known.get(id_)
            if before is not None and before[0] == stamp and before[1].state != "running":
                runs[id_] = before
            else:
                runs[id_] = (stamp, self._state(id_, path))
        self._known, self._looked_s = runs, time.monotonic()

    def _state(self, id_: str, path: Path) -> ListedFolder:
        try:
            folder = self._opened(id_, path)
            facts = folder.manifest
            done, total, unit, result = _progress(folder)
            return ListedFolder(
                id=id_,
                command=str(facts["command"]),
                created=str(facts["created"]),
                workload=workload_label(folder.config),
                policies=tuple(map(str, facts.get("policies") or _trained(folder))),
                seeds=len(facts["seeds"]),
                state="dead" if folder.dead else folder.state,
                done=done,
                total=total,
                unit=unit,
                result=result,
                note=_last_word(path),
            )
        except (DagsimError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return ListedFolder(id_, note=str(error))

    def _opened(self, id_: str, path: Path) -> Store:
        """Return the folder. It is read again only if its manifest has changed."""
        stamp, before = _stamp(path)[0], self._folders.get(id_)
        if before is None or before[0] != stamp:
            _refuse_links(path)
            before = self._folders[id_] = stamp, Store.read(path)
        return before[1]


def _run_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the id and the path of every run folder below ``root``. Do not search inside run
    folders or links."""
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
    """Raise an error if the run folder or a file in it is a link, because a link could expose files
    outside the served folder."""
    for folder in (path, path / "schedules", path / "cells"):
        if folder.is_symlink():
            raise RunFolderError(f"{folder}: is a link, which dagsim serve does not follow")
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise RunFolderError(f"{entry.path}: is a link, which dagsim serve does not follow")


def _stamp(path: Path) -> FolderStamp:
    """Return the modification times and sizes of the files that show the progress of a run."""
    stamps = []
    for name in _TOLD_BY:
        try:
            facts = (path / name).stat()
            stamps.append((facts.st_mtime_ns, facts.st_size))
        except OSError:
            stamps.append((0, 0))
    return tuple(stamps)


def _progress(folder: Store) -> tuple[int, int, str, str]:
    """Return the numbers of finished and planned runs (or iterations, or cells), their unit, and
    the best result so far."""
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
    """Return the algorithm of a training run, or the policy if there is only one."""
    if folder.manifest["command"] == "train" and folder.config.train is not None:
        algorithm = folder.config.train.algorithm
        return (str(getattr(algorithm, "kind", type(algorithm).__name__)),)
    return (folder.config.policy,)


def _last_word(path: Path) -> str:
    """Return the error that ended the run in the folder ``path``, or an empty text if no error did."""
    return str(parsed_json((path / "status.json").read_text(encoding="utf-8")).get("error") or "")


def _best(folder: Store) -> str:
    """Return the policy with the lowest mean completion time over its seeds so far, with that mean."""
    runs: dict[str, list[CellRun]] = {}
    for line in folder.lines():
        runs.setdefault(line.policy, []).append(line)
    means = {policy: plain_mean(lines, "jct_s.mean") for policy, lines in runs.items()}
    finite = {policy: mean for policy, mean in means.items() if mean == mean}
    if not finite:
        return ""
    best = min(finite, key=lambda policy: finite[policy])
    return f"{best}: mean JCT {number(finite[best])} s"
