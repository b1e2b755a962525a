"""Terms of a submission to Slurm, from sacct's SubmitLine, Constraints and Reservation."""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from typing import NamedTuple

from dagsim.errors import ModelError
from dagsim.model import Request

__all__ = ["Submission", "options_of", "submission"]


class Submission(NamedTuple):
    """The terms that a job was submitted with, besides its resources."""

    request: Request | None
    nice: float = 0.0
    tasks: int | None = None
    """Number of its tasks (``--ntasks``) if they are free to share nodes."""
    note: str = ""
    name: str = ""
    """The name of the job, as far as its line says it."""
    singleton: bool = False
    """True if it waits for all earlier jobs of its user with its name."""
    """Anything about it that is not modelled."""


_LONG = {
    "p": "partition", "C": "constraint", "L": "licenses", "n": "ntasks", "N": "nodes", "c": "cpus-per-task",
    "a": "array", "w": "nodelist", "x": "exclude", "t": "time", "q": "qos", "A": "account", "J": "job-name",
    "d": "dependency", "b": "begin", "m": "distribution", "G": "gpus", "o": "output", "e": "error", "i": "input",
    "D": "chdir", "M": "clusters", "F": "nodefile", "S": "core-spec", "B": "extra-node-info",
}  # fmt: skip
_BARE = frozenset(
    {
        "exclusive", "nice", "requeue", "no-requeue", "parsable", "hold", "H", "overcommit", "O", "contiguous",
        "oversubscribe", "s", "wait", "W", "Q", "quiet", "v", "verbose", "test-only", "ignore-pbs", "spread-job",
        "use-min-nodes", "reboot", "kill-on-invalid-dep", "get-user-env", "k", "no-kill", "propagate", "export-file",
    }
)  # fmt: skip
"""Options without a value, or whose value follows only after ``=``."""
_COMMANDS = ("sbatch", "srun", "salloc")
_UNMODELLED = {"nodelist": "nodes by name", "exclude": "excluded nodes", "contiguous": "contiguous nodes",
               "switches": "switches"}  # fmt: skip


def submission(
    line: str, constraint: str, reservation: str, partition: str, licences: tuple[tuple[str, int], ...] = ()
) -> Submission:
    """Read the terms of a job. A constraint, reservation or licences that sacct states count more
    than those in the ``line``; ``partition`` is sacct's column, which may name several.
    """
    named = partition if "," in partition else ""
    return _read(line, _stated(constraint), _stated(reservation), named, tuple([pair for pair in licences if pair[1]]))


@lru_cache(maxsize=1 << 14)
def _read(
    line: str, constraint: str, reservation: str, partition: str, licences: tuple[tuple[str, int], ...]
) -> Submission:
    options = options_of(line)
    partitions = tuple(name for name in options.get("partition", partition).split(",") if name)
    limit = re.search(r"%(\d{1,9})$", options.get("array", ""))
    spread, tasks = _shape(options)
    notes = [f"that ask for {what}, not modelled" for name, what in _UNMODELLED.items() if name in options]
    constraint = constraint or options.get("constraint", "")
    try:
        request = Request(
            constraint,
            partitions if len(partitions) > 1 else (),
            reservation or options.get("reservation", ""),
            licences or _licences(options.get("licenses", "")),
            options.get("exclusive", "no") in ("", "node"),
            spread,
            "",
            int(limit[1]) if limit and int(limit[1]) else None,
            () if "begin" in options else _after(options.get("dependency", "")),
            segment=_segment(options) if spread else None,
        )
    except ModelError:
        request, notes = Request(), [*notes, "whose constraint cannot be read, ignored"]
    alone = "begin" not in options and options.get("dependency", "").strip() == "singleton"
    note = notes[0] if notes else ""
    return Submission(request if request else None, _nice(options), tasks, note, options.get("job-name", ""), alone)


def _shape(options: dict[str, str]) -> tuple[bool | None, int | None]:
    """Whether instances take nodes of their own, and the number of tasks if they need not."""
    if not options.keys() - {"job-name"}:
        return None, None
    counted = "nodes" in options or "ntasks-per-node" in options or any(name.startswith("gpus") for name in options)
    tasks = options.get("ntasks", "1")
    if counted or not tasks.isdecimal() or not 1 < int(tasks) < 1 << 20:
        return True, None
    return False, int(tasks)


def _after(text: str) -> tuple[str, ...]:
    """The jobs that must end first (sbatch(1), ``--dependency``); empty if not all of the conditions are
    ``afterok``, ``afterany`` or ``afternotok``.
    """
    ids: list[str] = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"after(?:ok|any|notok):(\d+(?:_\d+)?(?::\d+(?:_\d+)?)*)", part.strip())
        if match is None:
            return ()
        ids += match[1].split(":")
    return tuple(ids)


def _segment(options: dict[str, str]) -> int | None:
    """Nodes per segment (``--segment``, Slurm 24.05), which are instances where each takes a node."""
    text = options.get("segment", "")
    return int(text) if re.fullmatch(r"[1-9]\d{0,5}", text) else None


def _nice(options: dict[str, str]) -> float:
    if "nice" not in options:
        return 0.0
    text = options["nice"] or "100"
    return float(text) if re.fullmatch(r"[+-]?\d{1,10}", text) else 0.0


def _licences(text: str) -> tuple[tuple[str, int], ...]:
    pairs = []
    for part in re.split("[,;|]", text):
        match = re.fullmatch(r"([^:=@]+)(?:@[^:=]*)?(?:[:=](\d{1,6}))?", part.strip())
        if match and match[2] != "0":
            pairs.append((match[1], int(match[2] or 1)))
    return tuple(pairs)


def _stated(text: str) -> str:
    return "" if text.strip().lower() in ("", "none", "(null)", "n/a", "unknown") else text.strip()


def options_of(line: str) -> dict[str, str]:
    """The options of a command of Slurm, up to the script or ``--wrap``, by long name."""
    head = line.partition(" --wrap")[0]
    try:
        words = shlex.split(head)
    except ValueError:
        words = head.split()
    if not words or words[0].rpartition("/")[2] not in _COMMANDS:
        return {}
    options: dict[str, str] = {"job-name": "wrap"} if head != line else {}
    at = 1
    while at < len(words):
        word, at = words[at], at + 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and len(word) > 1:
            name, value = word[1], word[2:]
            equals = value
            name = _LONG.get(name, name)
        else:
            options.setdefault("job-name", word.rpartition("/")[2])
            break  # the script
        if not equals and name not in _BARE and at < len(words):
            value, at = words[at], at + 1
        options[name] = value
    return options
