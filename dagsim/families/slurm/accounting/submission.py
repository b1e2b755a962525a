"""The terms of a Slurm submission, from sacct's SubmitLine, Constraints and Reservation."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from dagsim.errors import ModelError, NestedTooDeeply
from dagsim.families.slurm.accounting.accounting_values import gres_tres
from dagsim.model import Request
from dagsim.model.constraints import counts_of, without_counts
from dagsim.traces.sites import hosts
from dagsim.traces.times import is_unset


class ListedOptions(tuple[tuple[str, str], ...]):
    """The options of a job in a listing of the queue: the long names of sbatch's options, and their
    values. Unlike a submit line, they do not contain the shape of the job."""


class Submission(NamedTuple):
    """The terms with which a job was submitted, besides its resources."""

    request: Request | None
    nice: float = 0.0
    tasks: int | None = None
    """Number of its tasks (``--ntasks``) if tasks may share nodes."""
    note: str = ""
    """Features of the submission that are not modelled."""
    name: str = ""
    """The name of the job, if its submission line gives one."""
    singleton: bool = False
    """True if the job waits for all earlier jobs of its user with the same name."""
    begin: str = ""
    """The begin time as stated (``--begin``)."""
    fault: str = ""
    """The reason why the job has to be dropped, if its request is damaged."""
    gpus: tuple[tuple[str, str], ...] = ()
    """The GPUs and shards that the line requests: the unit (``job``, ``node``, ``task``,
    ``socket``), and the list."""
    units: tuple[int | None, int | None, int] = (None, None, 1)
    several: bool = False
    """True if the line has several components."""
    """Its number of tasks, tasks per node (if stated) and sockets per node."""

    def gpu_tres(self, nodes: int) -> str:
        """Return the GPUs in the submit line of a job with ``nodes`` nodes, as a list in the form
        of ``ReqTRES``.

        Raises:
            Dirty: A number is invalid.
        """
        tasks, per_node, sockets = self.units
        return gres_tres(dict(self.gpus), nodes, tasks or nodes * (per_node or 1), nodes * sockets)


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
"""Options that have no value, or whose value has to follow ``=``."""
_COMMANDS = ("sbatch", "srun", "salloc")
"""Commands that submit jobs."""
_UNMODELLED = {"contiguous": "contiguous nodes", "switches": "switches"}


def submission(
    line: str | ListedOptions,
    constraint: str,
    reservation: str,
    partition: str,
    licences: tuple[tuple[str, int], ...] = (),
    nodes: int = 0,
    component: int = 0,
) -> Submission:
    """Read the terms of a job. If sacct states a constraint, a reservation or licences, they take
    precedence over those in the ``line``. ``partition`` is sacct's column, which may name several
    partitions. ``nodes`` is the number of the job's nodes (0 if it is unknown). ``component`` is
    the number of this component in a heterogeneous job.
    """
    named = partition if "," in partition else ""
    counted = tuple([pair for pair in licences if pair[1]])
    several = False
    if isinstance(line, str) and " : " in line:  # each component of a heterogeneous job has its own options
        several = True
        command, parts = line.split(maxsplit=1)[0], line.split(" : ")
        own = parts[component] if component < len(parts) else parts[0]
        line = own if own.startswith(command) else f"{command} {own}"
    terms = _read(line, _stated(constraint), _stated(reservation), named, counted, nodes)
    return terms._replace(several=True) if several else terms


@lru_cache(maxsize=1 << 14)
def _read(
    line: str | ListedOptions,
    constraint: str,
    reservation: str,
    partition: str,
    licences: tuple[tuple[str, int], ...],
    nodes: int,
) -> Submission:
    options, fault = options_of(line), ""
    partitions = tuple(name for name in options.get("partition", partition).split(",") if name)
    limit = re.search(r"%(\d{1,9})$", options.get("array", ""))
    spread, tasks, (least, most) = (None, None, (None, None)) if isinstance(line, ListedOptions) else _shape(options)
    notes = [f"that request {what}, not modelled" for name, what in _UNMODELLED.items() if name in options]
    constraint = constraint or options.get("constraint", "")
    after, alone, unread = _after(options.get("dependency", ""))
    if unread:
        notes.append(f"whose dependency {unread} is not modelled: eligible as in the log")
    try:
        constraint = without_counts(constraint, nodes) if constraint else ""
        if "*" in constraint and counts_of(constraint) is None:
            notes.append("whose constraint has alternatives of counts, of which only the features are modelled")
        request = Request(
            constraint=constraint,
            partitions=partitions if len(partitions) > 1 else (),
            reservation=reservation or options.get("reservation", ""),
            licences=licences or _licences(options.get("licenses", "")),
            exclusive=options.get("exclusive", "no") in ("", "node"),
            spread=spread,
            array="",
            array_limit=int(limit[1]) if limit and int(limit[1]) else None,
            after=after,
            after_one="?" in options.get("dependency", ""),
            segment=_segment(options) if spread else None,
            nodes=_hosts(options.get("nodelist", "")),
            excluded=_hosts(options.get("exclude", "")),
            exclusive_user=options.get("exclusive", "") == "user",
            least_nodes=least,
            most_nodes=most,
        )
    except ModelError as error:
        request, notes = Request(), [*notes, "whose constraint cannot be read, ignored"]
        fault = "whose constraint is nested too deeply" if isinstance(error, NestedTooDeeply) else ""
    name, begin = options.get("job-name", ""), options.get("begin", "")
    note = notes[0] if notes else ""
    return Submission(
        request=request if request else None,
        nice=_nice(options),
        tasks=tasks,
        note=note,
        name=name,
        singleton=alone,
        begin=begin,
        fault=fault,
        gpus=_gpus(options),
        units=(_number(options, "ntasks"), _number(options, "ntasks-per-node"), _sockets(options)),
    )


def _hosts(text: str) -> tuple[str, ...]:
    """Return the nodes in a list, or none if the text is a file name or cannot be read."""
    try:
        return () if is_unset(text) or "/" in text else hosts(text)
    except ValueError:
        return ()


def _number(options: dict[str, str], name: str) -> int | None:
    return int(options[name]) if re.fullmatch(r"[1-9]\d{0,6}", options.get(name, "")) else None


def _sockets(options: dict[str, str]) -> int:
    return _number(options, "sockets-per-node") or int(
        (re.match(r"[1-9]\d{0,3}", options.get("extra-node-info", "")) or ["1"])[0]
    )


_GPU_OPTIONS = {
    "gpus": ("job", "gpu:"), "gpus-per-node": ("node", "gpu:"), "gres": ("node", ""),
    "gpus-per-task": ("task", "gpu:"), "tres-per-task": ("task", ""), "gpus-per-socket": ("socket", "gpu:"),
}  # fmt: skip
"""Options that request GPUs, each with the unit of its number and the part that its value omits."""


def _gpus(options: dict[str, str]) -> tuple[tuple[str, str], ...]:
    asked = []
    for name, (unit, prefix) in _GPU_OPTIONS.items():
        parts = [f"{prefix}{part.strip()}" for part in options.get(name, "").split(",") if part.strip()]
        if any(re.match(r"(?:gres[:/])?(?:gpu|shard)\b", part) for part in parts):
            asked.append((unit, ",".join(parts)))
    return tuple(asked[:1])


def _shape(options: dict[str, str]) -> tuple[bool | None, int | None, tuple[int | None, int | None]]:
    """Return whether each instance takes a node of its own. If not, also return the number of
    tasks, and the smallest and largest number of nodes for them. All results are ``None`` if the
    options do not determine them."""
    free = None, None
    if not options.keys() - {"job-name"}:
        return None, None, free
    counted = "nodes" in options or "ntasks-per-node" in options or any(name.startswith("gpus") for name in options)
    tasks = options.get("ntasks", "1")
    if not tasks.isdecimal() or not 1 < int(tasks) < 1 << 20:
        return True, None, free
    # Slurm packs as many tasks as possible onto the first nodes, but leaves one task for each
    # further node.
    several = re.fullmatch(r"([1-9]\d{0,5})(?:-([1-9]\d{0,5}))?", options.get("nodes", ""))
    if several and _is_packed(options) and 1 < int(several[1]) < int(tasks):
        return False, int(tasks), (int(several[1]), int(several[2] or several[1]))
    return (True, None, free) if counted else (False, int(tasks), free)


def _is_packed(options: dict[str, str]) -> bool:
    """Return True if only the number of nodes determines how many tasks run on a node."""
    stated = {"ntasks-per-node", "mem", "exclusive", "overcommit", "spread-job", "gres"}.intersection(options)
    return (
        not stated and "*" not in options.get("constraint", "") and not any(name.startswith("gpus") for name in options)
    )


_CONDITION = re.compile(
    r"(after(?:ok|any|notok|corr|burstbuffer)?):(\d+(?:_\d+)?(?:\+\d+)?(?::\d+(?:_\d+)?(?:\+\d+)?)*)"
)


def _after(text: str) -> tuple[tuple[str, ...], bool, str]:
    """Parse a dependency (sbatch(1), ``--dependency``). Return three values: the conditions as
    entries of ``Request.after``, whether the job waits for jobs with the same name (``singleton``),
    and a condition that is not modelled. Such a condition causes all conditions to be ignored. In a
    condition ``aftercorr``, ``_*`` stands for the task of the array that has the same number.
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
RELATIVE_BEGIN = re.compile(r"now(?:\+(\d{1,9})(second|minute|hour|day|week)?s?)?")
"""A begin time that is relative to the submission."""


def begin_after_s(begin: str, submit_s: float, moment_s: Callable[[str], float | None]) -> float | None:
    """Return how many seconds after the submission a job may begin (sbatch(1), ``--begin``). The
    result is at least 0, or None if the time cannot be read. ``moment_s`` reads a date with a
    time."""
    if match := RELATIVE_BEGIN.fullmatch(begin.strip()):
        return float(int(match[1] or 0) * _UNITS_S[match[2] or ""])
    if not re.match(r"\d{4}-\d\d-\d\d", begin):
        return None
    time_s = moment_s(begin if "T" in begin else f"{begin.strip()}T00:00:00")
    return None if time_s is None else max(time_s - submit_s, 0.0)


def _segment(options: dict[str, str]) -> int | None:
    """Return the number of nodes per segment (``--segment``, Slurm 24.05). This is the number of
    instances per segment if each instance takes a node.
    """
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


def options_of(line: str | ListedOptions) -> dict[str, str]:
    """Return the options of a Slurm command by their long names. The options end at the name of the
    script."""
    if isinstance(line, ListedOptions):
        return dict(line)
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    if not words or words[0].rpartition("/")[2] not in _COMMANDS:
        return {}
    options: dict[str, str] = {}
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
            break  # this word is the script, so no options follow
        if not equals and name not in _BARE and at < len(words):
            value, at = words[at], at + 1
        if name == "wrap":
            options.setdefault("job-name", "wrap")
            if not re.search(r"""--wrap[=\s]\s*["']""", line):
                at = _closing_options(words, at)
        else:
            options[name] = value
    return options


def _closing_options(words: list[str], after: int) -> int:
    """Return the index at which the options continue after the command of ``--wrap``. Slurm writes
    the line without quotes, so the command is assumed to end where only options of sbatch follow.
    """
    complete = [False] * len(words) + [True, False]
    for at in range(len(words) - 1, after - 1, -1):
        word = words[at]
        name, equals, _ = word[2:].partition("=") if word.startswith("--") else (_LONG.get(word[1:2], ""), word[2:], "")
        if word[:1] == "-" and name in _OPTIONS:
            complete[at] = complete[at + 1 if equals or name in _BARE else at + 2]
    return next(at for at in range(after, len(words) + 1) if complete[at])


_OPTION_NAMES = """
    acctg-freq bb bbf bell burst-buffer chdir cluster-constraint comment constraint container container-id
    cores-per-socket cpu-freq cpus-per-gpu deadline delay-boot exclude export gid gpu-bind gpu-freq gpus-per-node
    gpus-per-socket gpus-per-task gres gres-flags hint licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu
    mem-per-gpu mincpus network nodefile ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket oom-kill-step
    open-mode power prefer priority profile qos reservation resv-ports segment signal sockets-per-node switches
    thread-spec threads-per-core time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey
"""
_OPTIONS = _BARE | frozenset(_LONG.values()) | frozenset(_OPTION_NAMES.split())
"""Options of sbatch(1), by long name."""
