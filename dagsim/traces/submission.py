"""Terms of a submission to Slurm, from sacct's SubmitLine, Constraints and Reservation."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from dagsim.errors import ModelError
from dagsim.model import Request


class Submission(NamedTuple):
    """The terms that a job was submitted with, besides its resources."""

    request: Request | None
    nice: float = 0.0
    tasks: int | None = None
    """Number of its tasks (``--ntasks``) if they are free to share nodes."""
    note: str = ""
    """Anything about it that is not modelled."""
    name: str = ""
    """The name of the job, as far as its line says it."""
    singleton: bool = False
    """True if it waits for all earlier jobs of its user with its name."""
    begin: str = ""
    """Its begin time as stated (``--begin``)."""


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
_QUEUE = "squeue"
_COMMANDS = ("sbatch", "srun", "salloc", _QUEUE)
"""Commands that submit; a listing of the queue states a few terms in the same way, but no shape."""
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
    spread, tasks = (None, None) if line.startswith(_QUEUE) else _shape(options)
    notes = [f"that ask for {what}, not modelled" for name, what in _UNMODELLED.items() if name in options]
    constraint = constraint or options.get("constraint", "")
    after, alone, unread = _after(options.get("dependency", ""))
    if unread:
        notes.append(f"whose dependency {unread} is not modelled: eligible as in the log")
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
            after,
            after_one="?" in options.get("dependency", ""),
            segment=_segment(options) if spread else None,
        )
    except ModelError:
        request, notes = Request(), [*notes, "whose constraint cannot be read, ignored"]
    name, begin = options.get("job-name", ""), options.get("begin", "")
    note = notes[0] if notes else ""
    return Submission(request if request else None, _nice(options), tasks, note, name, alone, begin)


def _shape(options: dict[str, str]) -> tuple[bool | None, int | None]:
    """True if instances take nodes of their own, and the number of tasks if not; ``None`` if the options do not say."""
    if not options.keys() - {"job-name"}:
        return None, None
    counted = "nodes" in options or "ntasks-per-node" in options or any(name.startswith("gpus") for name in options)
    tasks = options.get("ntasks", "1")
    if counted or not tasks.isdecimal() or not 1 < int(tasks) < 1 << 20:
        return True, None
    return False, int(tasks)


_CONDITION = re.compile(
    r"(after(?:ok|any|notok|corr|burstbuffer)?):(\d+(?:_\d+)?(?:\+\d+)?(?::\d+(?:_\d+)?(?:\+\d+)?)*)"
)


def _after(text: str) -> tuple[tuple[str, ...], bool, str]:
    """The conditions of a dependency (sbatch(1), ``--dependency``) as entries of ``Request.after``;
    whether the job waits for those of its name (``singleton``); and a condition that is not modelled,
    with which none counts. ``aftercorr`` names the tasks of an array with ``_*``.
    """
    conditions: list[str] = []
    alone = False
    for part in re.split(r"[,?]", text) if text else ():
        match = _CONDITION.fullmatch(part.strip())
        if part.strip() == "singleton":
            alone = True
        elif match is None:
            return (), False, part.strip().partition(":")[0] or text
        elif match[1] == "after":
            for id in match[2].split(":"):
                name, _, minutes = id.partition("+")
                conditions.append(f"start:{name}+{60 * int(minutes)}" if minutes else f"start:{name}")
        else:
            ids = [id.partition("+")[0] for id in match[2].split(":")]
            conditions += [f"{id}_*" if match[1] == "aftercorr" and "_" not in id else id for id in ids]
    return tuple(conditions), alone, ""


_UNITS_S = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_RELATIVE = re.compile(r"now(?:\+(\d{1,9})(second|minute|hour|day|week)?s?)?")


def begin_after_s(begin: str, submit_s: float, moment_s: Callable[[str], float | None]) -> float | None:
    """Seconds from the submission to a begin time (sbatch(1), ``--begin``), at least 0; None if it cannot
    be read. ``moment_s`` reads a date with a time.
    """
    if match := _RELATIVE.fullmatch(begin.strip()):
        return float(int(match[1] or 0) * _UNITS_S[match[2] or ""])
    if not re.match(r"\d{4}-\d\d-\d\d", begin):
        return None
    time_s = moment_s(begin if "T" in begin else f"{begin.strip()}T00:00:00")
    return None if time_s is None else max(time_s - submit_s, 0.0)


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
