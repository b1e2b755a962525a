"""Values in Slurm's accounting: lists of resources, limits, states and arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from dagsim.model import UNLIMITED_S
from dagsim.model.arithmetic import whole_sum
from dagsim.model.mig import mig_share
from dagsim.traces.batch import ENDED, NOT_OVER
from dagsim.traces.fields import MOST_GPUS, Dirty, InvalidValue, finite_number, memory_gb
from dagsim.traces.report import ImpossibleTimes
from dagsim.traces.times import NO_DURATION, duration_s, is_unset
from dagsim.workload.records import clipped_repr

_SHORT = 500  # maximum length of a cached text, in characters
_INFINITE = "4294967295"  # Slurm's INFINITE, the largest 32-bit number
_SLICE = re.compile(r"(\d+)g\.(\d+)gb", re.IGNORECASE)
_MOST_TASKS = 4_000_001  # the largest MaxArraySize that Slurm accepts.


class Resources(NamedTuple):
    """Resources that a job requested or received, summed over its nodes."""

    gpus: int = 0
    """Whole GPUs, as counted by ``gres/gpu``; MIG slices are included."""
    types: tuple[tuple[str, int], ...] = ()
    """GPUs by the site's type name, if stated, without slices."""
    slices: tuple[tuple[float, int], ...] = ()
    """Number of MIG slices, by the share of a GPU that each slice has."""
    shards: int = 0
    cpus: float = 0.0
    memory_gb: float = 0.0
    """0 if not stated, or if the job takes whole nodes."""
    licences: tuple[tuple[str, int], ...] = ()

    @property
    def has_gpus(self) -> bool:
        """True if GPUs, MIG slices or shards are listed."""
        return bool(self.gpus or self.slices or self.shards)

    def with_gpus_of(self, other: Resources) -> Resources:
        """Return a copy of these resources with the GPUs replaced by those of ``other``."""
        return self._replace(gpus=other.gpus, types=other.types, slices=other.slices, shards=other.shards)

    @property
    def is_stated(self) -> bool:
        """True if any resource is listed."""
        return self != Resources()


def resources(text: str) -> Resources:
    """Parse ``billing=16,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=128G,node=1``, in any order.

    ``gres/gpu`` is the total number of GPUs of all types. If this entry is missing, the
    numbers for the single types are added up instead.

    Raises:
        Dirty: The text is not a list of ``name=value``, or a number is invalid.
    """
    return _resources(text) if len(text) < _SHORT else _resources.__wrapped__(text)


@lru_cache(maxsize=1 << 13)
def _resources(text: str) -> Resources:
    """Parse a list of resources. The same texts occur in many rows, so each distinct text is parsed
    only once.
    """
    listed = _pairs(text)
    if listed and all(name.isdecimal() for name in listed):  # taken from the column tres_alloc of slurmdbd's tables
        raise Dirty("whose resources are given as the numbers of the database instead of names (print them with sacct)")
    types: dict[str, int] = {}
    slices: dict[float, int] = {}
    for name, value in listed.items():
        kind = name.removeprefix("gres/gpu:")
        if kind == name:
            continue
        if (share := _slice_share(kind)) is None:
            types[kind] = _count(value)
        else:
            slices[share] = slices.get(share, 0) + _count(value)
    named = whole_sum(types.values()) + whole_sum(slices.values())
    return Resources(
        _count(listed["gres/gpu"]) if "gres/gpu" in listed else named,
        tuple([sized for sized in types.items() if sized[1]]),
        tuple([sized for sized in slices.items() if sized[1]]),
        whole_sum(_count(value) for name, value in listed.items() if f"{name}:".startswith("gres/shard:")),
        _count(listed.get("cpu", "0")),
        memory_gb(listed.get("mem", "0")),
        tuple([(name[8:], _count(value)) for name, value in listed.items() if name.startswith("license/")]),
    )


def licences_or_none(tres: str) -> tuple[tuple[str, int], ...]:
    """Return the licences that a list of resources contains. The result is empty if the text cannot
    be read."""
    try:
        return resources(tres).licences
    except Dirty:
        return ()


def with_older_columns(stated: Resources, gres: str, memory: str, cpus: str, nodes: int, total: bool) -> Resources:
    """Add the resources that a list lacks, and take them from other columns. GPUs come from
    ``AllocGRES`` (total numbers) or ``ReqGRES`` (numbers per node) in versions before 20.11, memory
    comes from ``ReqMem``, and CPUs from their own column.

    GPUs are written as ``gpu:2``, ``gpu:tesla:2``, ``PER_NODE:gpu:2`` (or ``JOB``, ``TASK``,
    ``SOCKET``), or with the number of the plugin: ``7696487:2``. ``ReqMem`` is per CPU
    (``4000Mc``), per node (``16Gn``) or a total.

    Raises:
        Dirty: A number is invalid.
    """
    if not stated.cpus and cpus:
        stated = stated._replace(cpus=_count(cpus))
    if not stated.memory_gb and not is_unset(memory):
        times = {"c": stated.cpus, "n": nodes}.get(memory.strip()[-1:], 1)
        stated = stated._replace(memory_gb=memory_gb(memory) * times)
    if stated.has_gpus or is_unset(gres):
        return stated
    unit = re.match(r"\s*PER_(JOB|TASK|SOCKET)", gres, re.IGNORECASE)
    whole = total or (unit is not None and unit[1].upper() == "JOB")
    return stated.with_gpus_of(resources(gres_tres({"job" if whole else "node": gres}, nodes, counted=True)))


_GRES = re.compile(
    r"(?:PER_\w+:)?(?:gres[:/])?(gpu|shard|7696487)(?:[:=]([^:=]*[^\d:=][^:=]*))?(?:[:=](\d{1,9}))?", re.IGNORECASE
)
"""A resource in a list of gres. Old versions wrote 7696487 instead of "gpu" in AllocGRES: its
letters, read as a number."""


def gres_tres(lists: Mapping[str, str], nodes: int, tasks: int = 1, sockets: int = 1, *, counted: bool = False) -> str:
    """Convert lists of gres to a list of resources that contains their GPUs. For example,
    ``gpu:a100:4`` on 2 nodes becomes ``gres/gpu=8,gres/gpu:a100=8``. Each key in ``lists`` tells
    whether the numbers in its list are per ``job``, ``node``, ``task`` or ``socket``. The first
    list that names GPUs is used. The list may have any of Slurm's forms: ``gpu:2(S:0)``,
    ``gres:gpu:a100:2``, ``gres/gpu:a100=2``, ``gpu``.

    Raises:
        Dirty: A number is invalid, or a number is missing although ``counted`` is set.
    """
    units = {"job": 1, "node": nodes, "task": tasks, "socket": sockets}
    for unit, times in units.items():
        sizes: dict[str, int] = {}
        for part in re.sub(r"\([^()]*\)", "", lists.get(unit, "")).split(","):
            match = _GRES.fullmatch(part.strip())
            if match is None:
                continue
            if counted and match[3] is None:
                raise Dirty(InvalidValue("with resources that are not numbers"))
            name = "gres/shard" if match[1].lower() == "shard" else "gres/gpu"
            size = times * _count(match[3] or "1")
            sizes[name] = sizes.get(name, 0) + size
            if match[2] and name == "gres/gpu":
                sizes[f"{name}:{match[2]}"] = sizes.get(f"{name}:{match[2]}", 0) + size
        if any(sizes.values()):
            return ",".join([f"{name}={size}" for name, size in sizes.items()])
    return ""


def gpus_of_gres(gres: str) -> str:
    """Return a list of gres in which every resource other than GPUs is called ``other``."""
    parts = re.sub(r"\([^()]*\)", "", gres).split(",") if not is_unset(gres) else ()
    return ",".join(part if _GRES.fullmatch(part.strip()) else "other" for part in parts)


def limit_s(raw: str, text: str) -> float | None:
    """Return the time limit in seconds. It is read from ``TimelimitRaw`` (minutes), or else from
    ``Timelimit`` (a duration). Like Slurm when it plans ahead, assume a year if the job has no
    limit. Return ``None`` if the limit is not stated or is that of the partition.

    Raises:
        Dirty: The text is neither a number nor one of Slurm's words.
    """
    for limit_text, is_raw in ((raw, True), (text, False)):
        if is_unset(limit_text):
            continue
        word = limit_text.strip().lower()
        if word in ("unlimited", "infinite", _INFINITE):
            return UNLIMITED_S
        if word in ("partition_limit", "partition limit"):
            return None
        if limit_text.strip() in NO_DURATION:
            return None
        limit = 60.0 * finite_number(limit_text, "TimelimitRaw") if is_raw else duration_s(limit_text, "Timelimit")
        if limit is None:
            return None
        if limit < 0:
            raise Dirty(ImpossibleTimes("with a negative time limit"))
        return min(limit, UNLIMITED_S)
    return None


def state(text: str) -> str:
    """Return the full name of a state. For example, ``CANCELLED by 1007`` becomes ``CANCELLED``,
    and the shortened ``OUT_OF_ME+`` becomes ``OUT_OF_MEMORY``.

    Raises:
        Dirty: Slurm has no state with this name.
    """
    if text in ENDED:
        return text
    word = (text.split() or [""])[0].upper()
    if word.endswith("+"):
        candidates = sorted(name for name in ENDED | NOT_OVER if name.startswith(word[:-1]))
        word = candidates[0] if len(candidates) == 1 and len(word) > 1 else word
    if word not in ENDED | NOT_OVER:
        raise Dirty("in an unknown state" if word else "without a state")
    return word


def array_tasks(job: str) -> int | None:
    """Return the number of tasks in an array id such as ``910002_[3-90,95,97-99%8]``. If the text
    was cut off, this is a lower bound. Return ``None`` for the id of a single job.

    Raises:
        Dirty: The brackets do not contain a list of numbers.
    """
    _, bracket, inside = job.partition("_[")
    if not bracket:
        return None
    listed = inside.rstrip("]").partition("%")[0]
    ended = not listed.endswith("...")
    parts = listed.removesuffix("...").split(",")
    tasks = 0
    for part in parts if ended else parts[:-1]:  # the last number of a list that was cut off may be incomplete
        if not (listed_range := _range(part)):
            raise Dirty(InvalidValue("with an invalid list of array tasks"))
        tasks += len(listed_range)
    if tasks > _MOST_TASKS:
        raise Dirty(InvalidValue("with an invalid list of array tasks"))
    return tasks


def _range(part: str) -> range:
    """Return the array tasks in ``3-90:2`` or ``95``, or the first one if the last is before it. The
    result is empty if the text cannot be read.
    """
    first, _, rest = part.partition("-")
    last, _, step = rest.partition(":")
    numbers = (first, last or first, step or "1")
    if not all(number.isascii() and number.isdecimal() and len(number) < 9 for number in numbers):
        return range(0)
    begin, end, stride = map(int, numbers)
    return range(begin, max(begin, end) + 1, stride or 1)


def is_array(id: str) -> bool:
    """Return True if the id lists tasks of an array, and the list can be read."""
    try:
        return bool(array_tasks(id))
    except Dirty:
        return False


def array_ids(id: str) -> list[str]:
    """Return the ids of the tasks in ``910002_[3-90,95%8]``, or the id itself if it contains no
    such list.
    """
    if not is_array(id):
        return [id]
    base, _, inside = id.partition("_[")
    listed = inside.rstrip("]").partition("%")[0]
    parts = listed.removesuffix("...").split(",")
    return [f"{base}_{task}" for part in parts for task in _range(part.rstrip(":"))]


def _pairs(text: str) -> Mapping[str, str]:
    listed = {}
    for part in text.split(",") if not is_unset(text) else ():
        name, equals, value = part.partition("=")
        if not equals:
            raise Dirty("with resources that are not a list of name=value pairs")
        listed[name.strip().lower()] = value
    return listed


def _count(text: str) -> int:
    value = finite_number(text, "resources")
    if not 0 <= value <= MOST_GPUS * 1024 or value != int(value):
        raise Dirty(InvalidValue("with impossible resources"))
    return int(value)


def _slice_share(kind: str) -> float | None:
    match = _SLICE.search(kind)
    if match is None:
        return None
    size, memory = int(match[1][:4]), int(match[2][:6])
    if not size or not memory:
        raise Dirty(InvalidValue("with an invalid MIG slice"))
    if (share := mig_share(size, memory)) > 1:
        raise Dirty(InvalidValue("with an invalid MIG slice"))
    return share


_NO_VALUE = 4294967294  # Slurm's NO_VAL, which is one less than INFINITE
_MOST_BITS = 4_000_001


def json_number(value: Any) -> int | float | str | None:
    """Read a number, given plainly or as ``{"set", "infinite", "number"}``. Return ``UNLIMITED`` if
    it is infinite, and an empty text if it is not set."""
    if isinstance(value, dict):
        if value.get("infinite"):
            return "UNLIMITED"
        value = value.get("number") if value.get("set") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clipped_repr(value) if isinstance(value, str) else None
    return None if value in (_NO_VALUE, _NO_VALUE + 1) else value


def unescaped_text(value: int | float | str | None) -> str:
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return "inf"  # the file must be damaged, because no real value needs 64 bits
    return "" if value is None else str(value)


def listed_tasks(tasks: str) -> str:
    """Convert a hexadecimal bit mask, whose bit i stands for task i of an array, to a list such as
    ``3-60``. Return other texts unchanged.
    """
    if not tasks.startswith("0x") or 4 * len(tasks) > _MOST_BITS:
        return tasks
    try:
        bits = f"{int(tasks, 16):b}"[::-1]
    except ValueError:
        return tasks
    runs, at = [], bits.find("1")
    while at >= 0:
        end = bits.find("0", at)
        last = (len(bits) if end < 0 else end) - 1
        runs.append(str(at) if last == at else f"{at}-{last}")
        at = bits.find("1", last + 1)
    return ",".join(runs)
