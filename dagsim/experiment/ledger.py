"""The ledger of test seeds: each published table and each training run has its own pool, and uses
each seed only once.

A ledger is the file ``seeds.yaml`` in the folder that contains the run folders.
``results/seeds.yaml`` is the ledger of this project.

Each training run is tested on a block of seeds that no other training run in the same folder uses
(``claim_report_seeds``). If all training runs used the same seeds, choosing the best of them by its
test would be choosing on the test set. A training run reserves its block of seeds at its first
test, records the block in its run folder, and keeps it when it is resumed.

A script that makes a table requests seeds (``Ledger.spend``) before its first run, and closes the
entry (``Ledger.close``) when the table has been written. A second request for the same table is
refused, unless the script takes unused seeds (``fresh``) or the table states how often its seeds
have been used (``again``). A stopped script continues with its open entry.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dagsim.config import yaml
from dagsim.errors import ConfigError
from dagsim.experiment.provenance import code_commit
from dagsim.files import Lock, write_text
from dagsim.seeds import REPORT
from dagsim.text import count_of

BLOCK = 1_000
"""Number of seeds in a pool."""
FIRST = REPORT.start + 10_000
"""The first seed of the first pool. Lower seeds were used before the ledger existed."""
_WAIT_S = 60.0
"""Maximum number of seconds that a process waits until another process has written its entry."""
_RECORD = "report_seeds.yaml"
_HEAD = "# Report seeds by published table: its pool, and who spent which (dagsim/experiment/ledger.py).\n"


@dataclass(frozen=True, slots=True)
class Spending:
    """A table's test seeds, and how often they have been used for the table."""

    table: str
    seeds: range
    command: str
    commit: str
    on: str
    times: int
    """How many times the table has been made on these seeds, including this time."""
    last_commit: str = ""
    """The commit at which a stopped script was continued, if it differs from ``commit``."""

    def sentence(self, method: str, unit: str = "report seeds", n: int | None = None) -> str:
        """Return the line below a table that states the command, the commit, the seeds and the
        method. ``n`` is the number of seeds used, if not all were used.
        """
        used = self.seeds[: len(self.seeds) if n is None else n]
        again = "" if self.times == 1 else f", used {self.times} times (results/seeds.yaml)"
        commits = [f"{commit[:12]}{commit[40:]}" for commit in (self.commit, self.last_commit) if commit]
        return (
            f"Made by `{self.command}` at commit {' to '.join(commits)} on {self.on}; n = "
            f"{len(used)} {unit} ({used[0]} to {used[-1]}, pool `{self.table}`{again}); {method}."
        )


def claim_report_seeds(folder: Path, count: int, first: int | None = None) -> tuple[int, ...]:
    """Return the test seeds of the training run in the run folder ``folder``.

    The seeds are read from the run folder. If it contains none, the next free block is taken from
    the ledger beside the run folder. To repeat an earlier test, give ``first``, the first of its
    seeds.

    Raises:
        ConfigError: The ledger does not have enough seeds left, or ``first`` is not a test seed.
    """
    record = folder / _RECORD
    if record.exists():
        content = yaml.read_yaml(record).value
        if not isinstance(content, dict) or not isinstance(content.get("seeds"), list):
            raise ConfigError(
                f"{record}: seeds must be a list of the first seed and the end of the range, got {content!r}"
            )
        return tuple(range(*content["seeds"]))
    if first is None:
        ledger = Ledger(folder.parent / "seeds.yaml")
        spending = ledger.spend(f"train/{folder.name}", count, f"dagsim train ({folder.name})", fresh=True)
        seeds = spending.seeds
        ledger.close(spending)
    else:
        seeds = range(first, first + count)
        if first not in REPORT or seeds[-1] not in REPORT:
            raise ConfigError(
                f"train.report_from: seeds {first} to {seeds[-1]} must be within {REPORT.start} to {REPORT.stop - 1}"
            )
    write_text(record, yaml.dump({"seeds": _bounds(seeds)}))
    return tuple(seeds)


class Ledger:
    """The pools of test seeds in the YAML file at ``path``. The file is created when the first
    entry is made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def spend(
        self,
        table: str,
        count: int,
        command: str,
        *,
        fresh: bool = False,
        again: bool = False,
        pool: range | None = None,
        windows_of: str | None = None,
    ) -> Spending:
        """Assign ``count`` seeds to ``table``.

        A table with fixed seeds uses ``pool``, whereas any other table gets a block of 1,000 seeds.
        ``windows_of`` names a part of a trace, whose windows are numbered by the seeds. Such a seed
        is the position of a window, and no random numbers are drawn from it.

        Raises:
            ConfigError: The seeds have been used before, or the pool has too few seeds left.
        """
        with self._locked():
            tables = self.tables()
            of = {"windows_of": windows_of} if windows_of else {}
            pool = pool or _next_block(tables, count)
            entry = tables.setdefault(table, {"pool": _bounds(pool), **of, "spent": []})
            whole, spent = range(*entry["pool"]), entry["spent"]
            last = spent[-1] if spent else None
            commit = code_commit(Path(__file__).parents[2]) or "unknown"
            if last and not last["done"] and last["command"] == command:
                if commit != last["commit"]:
                    last["last_commit"] = commit
                    self._write(tables)
                return _spending(table, last, spent)
            if last and not (fresh or again):
                raise ConfigError(
                    f"{self.path}: seeds {last['seeds'][0]} to {last['seeds'][1] - 1} of {table!r} "
                    f"were used on {last['on']} by {last['command']!r}; give --fresh to take unused seeds "
                    "from its pool, or --again to reuse the same seeds (the table then says so)"
                )
            unused = max((record["seeds"][1] for record in spent), default=whole.start)
            first = last["seeds"][0] if last and again else unused
            if count < 1 or first + count > whole.stop:
                left = whole.stop - first
                raise ConfigError(
                    f"{self.path}: the pool of {table!r} has only {count_of(left, 'seed')} left, "
                    f"but {count:,} were requested"
                )
            spent.append(
                {
                    "seeds": [first, first + count],
                    "on": datetime.now(UTC).strftime("%Y-%m-%d"),
                    "commit": commit,
                    "command": command,
                    "done": False,
                }
            )
            self._write(tables)
            return _spending(table, spent[-1], spent)

    def close(self, spending: Spending) -> None:
        """Record that the table has been made, so that its seeds count as used.

        Raises:
            ConfigError: The entry does not exist.
        """
        with self._locked():
            tables = self.tables()
            for entry in reversed(tables.get(spending.table, {"spent": []})["spent"]):
                if entry["seeds"] == _bounds(spending.seeds) and entry["command"] == spending.command:
                    entry["done"] = True
                    self._write(tables)
                    return
        raise ConfigError(f"{self.path}: {spending.table!r} has no entry for {spending.command!r}")

    def tables(self) -> dict[str, Any]:
        """Return the pools and their used seeds, by table.

        Raises:
            ConfigError: The file is not a ledger.
        """
        if not self.path.exists():
            return {}
        content = yaml.read_yaml(self.path).value
        if not isinstance(content, dict):
            raise ConfigError(f"{self.path}: the file must be a mapping from tables to their pools of seeds")
        return content

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the ledger, so that other processes can neither read nor write entries while the
        block is running.

        Raises:
            ConfigError: Another process held the lock for a minute.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock, until = Lock(self.path.with_name(f".{self.path.name}.lock")), time.monotonic() + _WAIT_S
        while not lock.claim():
            if time.monotonic() > until:
                raise ConfigError(f"{self.path}: another process has been writing to it for {_WAIT_S:.0f} s")
            time.sleep(0.05)
        try:
            yield
        finally:
            lock.release()

    def _write(self, tables: Mapping[str, Any]) -> None:
        write_text(self.path, _HEAD + yaml.dump(dict(tables)))


def _spending(table: str, entry: Mapping[str, Any], spent: list[dict[str, Any]]) -> Spending:
    seeds = range(*entry["seeds"])
    times = sum(1 for record in spent if set(range(*record["seeds"])) & set(seeds))
    last = entry.get("last_commit", "")
    return Spending(table, seeds, entry["command"], entry["commit"], str(entry["on"]), times, last)


def _next_block(tables: Mapping[str, Any], count: int) -> range:
    """Return the first free block of at least ``count`` seeds, in whole thousands. Pools of windows
    and pools outside the test seeds are ignored.
    """
    blocks = [entry["pool"][1] for entry in tables.values() if FIRST <= entry["pool"][0] < REPORT.stop]
    first = max(blocks, default=FIRST)
    return range(first, min(first + BLOCK * max(1, -(-count // BLOCK)), REPORT.stop))


def _bounds(seeds: range) -> list[int]:
    return [seeds.start, seeds.stop]
