"""Write random logs with a known truth in the ways of real tools, read them back, and count silent differences.

    python scripts/check_inputs.py --count 2000                       # all writers in turn
    python scripts/check_inputs.py --writer sacct --first 17 --count 1 --show    # one variant again, with its file

A variant is a seed: a writer of ``WRITERS`` draws jobs, writes them into a folder and returns what a reader of the file
can know of them. The product reads the file; numbers of jobs, GPU- and core-hours, arrivals, durations and users are
compared. A difference is silent if the report of the reading tells neither of a dropped row nor of a note. Prints each
silent difference with its seed, and counts by writer; exits 1 if there was one.

A writer for another format is a function from ``(Random, Path)`` to ``Written``, and an entry of ``WRITERS``.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import isclose
from pathlib import Path
from random import Random
from typing import Any, Literal
from zoneinfo import ZoneInfo

import command

from dagsim.errors import DagsimError
from dagsim.traces import Trace, TraceOptions, open_trace
from dagsim.traces.sites import folded

_TYPES = ("a100", "h100", "l40s", "v100")
_USERS = ("ada", "ben", "cy", "d'or")
_OUTCOMES = ("equal", "told", "refused", "silent")
_SHOWN = 6000  # characters of a file
_PHRASES = ("fit", "my job", "pipe|in|name", "line\nbreak", 'say "hi"', "a;b,c", "größe", "x=1,y=2")


@dataclass(frozen=True)
class Part:
    """A component of a job: equal shares of some nodes."""

    nodes: tuple[str, ...]
    gpus: int  # per node
    kind: str
    cpus: int  # per node
    memory_mb: int  # per node


@dataclass(frozen=True)
class Attempt:
    """A run of a job, in seconds since 1970."""

    submit_s: int
    eligible_s: int
    start_s: int
    end_s: int
    state: str


@dataclass(frozen=True)
class TrueJob:
    """A job as it was."""

    id: str
    user: str
    account: str
    parts: tuple[Part, ...]
    attempts: tuple[Attempt, ...]
    limit_min: int | None = None
    suspended_s: int = 0
    name: str = "job"

    @property
    def arrival_s(self) -> int:
        return self.attempts[0].submit_s

    @property
    def work_s(self) -> int:
        """Run time of the last attempt."""
        return self.attempts[-1].end_s - self.attempts[-1].start_s - self.suspended_s


@dataclass
class Written:
    """A file, the options to read it with, and what can be known of the jobs in it."""

    path: Path
    known: list[Known]
    options: TraceOptions = field(default_factory=TraceOptions)


@dataclass(frozen=True)
class Known:
    """What a file says of a job: seconds, GPUs and cores of all its instances, and its user."""

    arrival_s: float
    seconds: float
    gpus: float
    cores: float
    user: str

    @classmethod
    def of(cls, job: TrueJob, seconds: float | None = None) -> Known:
        gpus = sum(len(part.nodes) * part.gpus for part in job.parts)
        cores = sum(len(part.nodes) * part.cpus for part in job.parts)
        return cls(job.arrival_s, job.work_s if seconds is None else seconds, gpus, cores, job.user)


def draw_jobs(rng: Random, *, again: bool = True) -> list[TrueJob]:
    """Jobs of a small site: arrays, heterogeneous and requeued ones, and ids that are used again. A third of the logs
    lies around a change to or from summer time.
    """
    base_s = rng.choice((1_700_000_000, 1_761_436_000, 1_774_740_000, 1_761_429_600)) + rng.randrange(3600)
    jobs: list[TrueJob] = []
    number = rng.randrange(1, 90_000)
    for _ in range(rng.randint(1, 9)):
        number += rng.randint(1, 4)
        base_s += rng.choice((0, 7, 300, 1800))
        limit = rng.choice((None, 30, 60, 1440))
        form = rng.choice(("plain", "plain", "plain", "array", "het", "requeued", "suspended"))
        count = rng.randint(2, 4) if form == "array" else 1
        for task in range(count):
            wait_s, held_s = rng.choice((0, 1, 400, 5000)), rng.choice((0, 0, 60))
            attempts = [_attempt(rng, base_s, held_s, wait_s)]
            if form == "requeued":
                attempts[0] = replace(attempts[0], state=rng.choice(("REQUEUED", "PREEMPTED", "NODE_FAIL")))
                attempts.append(_attempt(rng, attempts[0].end_s, 121, wait_s))
            run_s = attempts[-1].end_s - attempts[-1].start_s
            jobs.append(
                TrueJob(
                    f"{number}_{task}" if form == "array" else str(number),
                    rng.choice(_USERS),
                    rng.choice(("bio", "phys", "")),
                    tuple([_part(rng) for _ in range(2 if form == "het" else 1)]),
                    tuple(attempts),
                    limit,
                    rng.randrange(run_s) if form == "suspended" and run_s else 0,
                    rng.choice(_PHRASES),
                )
            )
    if again and rng.random() < 0.2:
        old = rng.choice(jobs)
        shift = 400 * 86400
        moved = [
            replace(one, submit_s=one.submit_s + shift, eligible_s=one.eligible_s + shift, start_s=one.start_s + shift,
                    end_s=one.end_s + shift)
            for one in old.attempts
        ]  # fmt: skip
        jobs.append(replace(old, attempts=tuple(moved), user=rng.choice(_USERS)))
    return jobs


def _attempt(rng: Random, submit_s: int, held_s: int, wait_s: int) -> Attempt:
    start_s = submit_s + held_s + wait_s
    end_s = start_s + rng.choice((0, 1, 59, 1200, 3600, 7260, 90_000))
    return Attempt(
        submit_s, submit_s + held_s, start_s, end_s, rng.choice(("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"))
    )


def _part(rng: Random) -> Part:
    nodes = tuple([f"n{number:02}" for number in sorted(rng.sample(range(1, 30), rng.choice((1, 1, 2, 4))))])
    return Part(nodes, rng.choice((0, 1, 4)), rng.choice(_TYPES), rng.choice((1, 8, 16)), rng.choice((1024, 4096)))


# Slurm


def _tres(order: str, part: Part, gpus: str) -> str:
    """A list of resources as Slurm writes it; ``gpus`` is ``typed``, ``untyped``, ``both`` or ``none``."""
    nodes, total = len(part.nodes), len(part.nodes) * part.gpus
    parts = [
        f"billing={nodes * part.cpus}",
        f"cpu={nodes * part.cpus}",
        f"mem={nodes * part.memory_mb}M",
        f"node={nodes}",
    ]
    if total and gpus in ("typed", "both"):
        parts.append(f"gres/gpu:{part.kind}={total}")
    if total and gpus in ("untyped", "both"):
        parts.append(f"gres/gpu={total}")
    return ",".join(parts if order == "ordered" else sorted(parts, reverse=True))


def _clock(seconds: int, zone: ZoneInfo | None, unset: bool = False) -> str:
    if unset:
        return "Unknown"
    return (
        str(seconds)
        if zone is None
        else datetime.fromtimestamp(seconds, UTC).astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S")
    )


def _span(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    return f"{days}-" * bool(days) + f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def _limit(job: TrueJob) -> str:
    return "UNLIMITED" if job.limit_min is None else _span(60 * job.limit_min)


def _submit_line(rng: Random, job: TrueJob, *, gpus: bool) -> str:
    """The line of a submission: Slurm joins its words without quotes."""
    segments = []
    for part in job.parts:
        words = [f"-N{len(part.nodes)}", f"--ntasks-per-node={part.cpus}"]
        if gpus and part.gpus:
            total = part.gpus * len(part.nodes)
            words.append(
                rng.choice(
                    (
                        f"--gres=gpu:{part.gpus}",
                        f"--gres=gpu:{part.kind}:{part.gpus}",
                        f"--gpus-per-node={part.kind}:{part.gpus}",
                        f"--gpus-per-node {part.gpus}",
                        f"-G {total}",
                        f"--gpus={part.kind}:{total}",
                    )
                )
            )
        rng.shuffle(words)
        segments.append(" ".join(words))
    if len(segments) > 1:
        return f"sbatch {' : '.join(segments)} run.sh"
    return rng.choice(
        (
            f"sbatch {segments[0]} run.sh",
            f"sbatch --wrap sleep 9; exit 3 {segments[0]} -p gpu",
            f"sbatch {segments[0]} --wrap echo a | wc -l",
            f'sbatch {segments[0]} --wrap "date\nhostname"',
        )
    )


@dataclass(frozen=True)
class _Style:
    """How a site and a user print accounting."""

    gpus: str
    zone: ZoneInfo | None
    duplicates: bool
    line: bool
    old: bool
    """GPUs in AllocGRES or ReqGRES, as before 20.11."""


def _style(rng: Random) -> _Style:
    gpus = rng.choice(("typed", "untyped", "both", "both", "none"))
    zone = rng.choice((None, None, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("UTC")))
    old = gpus == "none" and rng.random() < 0.4
    return _Style(gpus, zone, rng.random() < 0.8, (gpus == "none" and not old) or rng.random() < 0.5, old)


def _components(jobs: list[TrueJob]) -> list[TrueJob]:
    """Each component of a heterogeneous job of Slurm, as a job of its own."""
    return [replace(job, parts=(part,)) for job in jobs for part in job.parts]


def _known(jobs: Iterable[TrueJob], style: _Style) -> list[Known]:
    """What remains known: without --duplicates, the first attempts are not in the file."""
    listed = []
    for job in jobs:
        shown = job if style.duplicates else replace(job, attempts=job.attempts[-1:])
        listed.append(Known.of(shown))
    return listed


def _rows(rng: Random, jobs: Sequence[TrueJob], style: _Style, steps: bool) -> list[dict[str, str]]:
    rows = []
    for job in jobs:
        line = _submit_line(rng, job, gpus=True)
        for attempt in job.attempts if style.duplicates else job.attempts[-1:]:
            for place, part in enumerate(job.parts):
                id = f"{job.id}+{place}" if len(job.parts) > 1 else job.id
                total = part.gpus * len(part.nodes)
                suspended = job.suspended_s if attempt is job.attempts[-1] else 0
                elapsed = attempt.end_s - attempt.start_s - suspended
                per_node = f"gpu:{part.kind}:{part.gpus}" if rng.random() < 0.5 else f"gpu:{part.gpus}"
                row = {
                    "JobIDRaw": id.replace("_", "0").replace("+", "0"),
                    "JobID": id,
                    "JobName": job.name,
                    "User": job.user,
                    "Account": job.account,
                    "Partition": "gpu",
                    "QOS": "normal",
                    "State": f"{attempt.state} by 7" * (attempt.state == "CANCELLED") or attempt.state,
                    "Submit": _clock(attempt.submit_s, style.zone),
                    "Eligible": _clock(attempt.eligible_s, style.zone),
                    "Start": _clock(attempt.start_s, style.zone),
                    "End": _clock(attempt.end_s, style.zone),
                    "ElapsedRaw": str(elapsed),
                    "Elapsed": _span(elapsed),
                    "Suspended": _span(suspended),
                    "TimelimitRaw": "UNLIMITED" if job.limit_min is None else str(job.limit_min),
                    "Timelimit": _limit(job),
                    "NNodes": str(len(part.nodes)),
                    "NCPUS": str(part.cpus * len(part.nodes)),
                    "ReqTRES": _tres("ordered", part, "untyped" if style.gpus == "both" else style.gpus),
                    "AllocTRES": _tres(rng.choice(("ordered", "other")), part, style.gpus),
                    "NodeList": folded(part.nodes),
                    "Restarts": str(len(job.attempts) - 1),
                    "SubmitLine": line,
                    "ReqGRES": per_node if part.gpus else "",
                    "AllocGRES": f"gpu:{total}" if part.gpus else "",
                    "Comment": rng.choice(("", *_PHRASES)),
                }
                rows.append(row)
                for step in (".batch", ".extern", ".0") if steps else ():
                    rows.append(row | {"JobID": f"{id}{step}", "JobIDRaw": f"{row['JobIDRaw']}{step}", "User": "",
                                       "Partition": "", "QOS": "", "ReqTRES": "", "TimelimitRaw": "", "Timelimit": "",
                                       "SubmitLine": "", "Comment": ""})  # fmt: skip
    for number in range(rng.choice((0, 0, 2))):  # jobs that never ran
        at = jobs[0].arrival_s + number
        never = dict.fromkeys(rows[0], "") | {
            "JobID": f"{99_000 + number}" + rng.choice(("", "_[3-7%2]")),
            "JobIDRaw": str(99_000 + number),
            "User": "ada",
            "State": rng.choice(("PENDING", "CANCELLED by 3")),
            "Submit": _clock(at, style.zone),
            "Eligible": _clock(at, style.zone),
            "Start": rng.choice(("Unknown", "None")),
            "End": "Unknown",
            "ElapsedRaw": "0",
            "Elapsed": "00:00:00",
            "NNodes": "1",
            "NCPUS": "1",
            "ReqTRES": "cpu=1,mem=1M,node=1",
            "NodeList": "None assigned",
        }
        rows.append(never)
    return rows


_SPARE = ("JobIDRaw", "JobName", "Account", "Partition", "QOS", "Eligible", "TimelimitRaw", "Timelimit", "NCPUS",
          "ReqTRES", "Comment", "ElapsedRaw")  # fmt: skip
"""Columns that a file may lack."""
_OWN = ("JobIDRaw", "JobID", "User", "Account", "State", "Submit", "Eligible", "Start", "End", "ElapsedRaw",
        "Suspended", "NNodes", "ReqTRES", "AllocTRES", "NodeList")  # fmt: skip
_FURTHER = ("JobIDRaw", "JobName", "SubmitLine", "AllocGRES")


def write_sacct(rng: Random, folder: Path) -> Written:
    """``sacct -P``, as it is, or as it is after other programs had it."""
    jobs, style = draw_jobs(rng), _style(rng)
    rows = _rows(rng, jobs, style, steps=rng.random() < 0.4)
    needed = ["JobID", "User", "State", "Submit", "Start", "End", "NNodes", "AllocTRES", "NodeList"]
    # an hour that is repeated can be told apart by the elapsed time alone
    needed += [rng.choice(("ElapsedRaw", "Elapsed"))] + ["Suspended"] * any(job.suspended_s for job in jobs)
    needed += ["SubmitLine"] * (style.gpus == "none" and not style.old)
    needed += rng.choice((["AllocGRES"], ["ReqGRES"])) if style.old else []
    spare = list(_SPARE)
    spare += ["SubmitLine"] * style.line
    names = list(dict.fromkeys([*needed, *[name for name in spare if rng.random() < 0.6]]))
    names += ["Restarts"] * (not style.duplicates)
    if rng.random() < 0.5:
        rng.shuffle(names)
    table = [[row[name] for name in names] for row in rows]
    header = [rng.choice((str, str.upper, str.lower))(name) for name in names]
    options: dict[str, Any] = {} if style.zone is None else {"timezone": str(style.zone)}
    headless = rng.random() < 0.15
    if headless:
        options["columns"] = ",".join(names)
    lines = table if headless else [header, *table]
    how = rng.choice(("plain", "plain", "plain", "trailing", "delimiter", "quoted", "quoted all"))
    mark = {"delimiter": rng.choice(";\t^"), "quoted": rng.choice(",;|"), "quoted all": rng.choice(",;|\t")}.get(
        how, "|"
    )
    if how.startswith("quoted"):
        text = io.StringIO()
        csv.writer(
            text, delimiter=mark, quoting=csv.QUOTE_ALL if "all" in how else csv.QUOTE_MINIMAL, lineterminator="\n"
        ).writerows(lines)
        content = text.getvalue()
    else:
        content = "".join(f"{mark.join(line)}{mark * (how == 'trailing')}\n" for line in lines)
    path = folder / rng.choice(("sacct.txt", "jobs.csv", "log"))
    data = content.replace("\n", "\r\n" if rng.random() < 0.1 else "\n").encode()
    data = b"\xef\xbb\xbf" * (rng.random() < 0.1) + data
    path.write_bytes(gzip.compress(data) if rng.random() < 0.1 else data)
    if headless:
        options["delimiter"] = mark
    return Written(path, _known(_components(jobs), style), TraceOptions(**options))


def write_sacct_folder(rng: Random, folder: Path) -> Written:
    """Accounting in two files: one without free text, and one with further columns."""
    jobs, style = draw_jobs(rng, again=False), replace(_style(rng), duplicates=True)
    rows = _rows(rng, jobs, style, steps=False)
    for name, columns in (
        ("sacct.txt", _OWN),
        ("sacct-more.txt", _FURTHER),
    ):
        lines = [columns, *([row[column] for column in columns] for row in rows)]
        (folder / name).write_text("".join("|".join(line) + "\n" for line in lines))
    (folder / "slurm.conf").write_text("ClusterName=c\n")
    zone = None if style.zone is None else str(style.zone)
    return Written(folder, _known(_components(jobs), style), TraceOptions(timezone=zone))


def _number(objects: bool, value: int | None) -> Any:
    if not objects:
        return value
    return {"set": value is not None, "infinite": False, "number": value or 0}


def write_sacct_json(rng: Random, folder: Path) -> Written:
    """``sacct --json``, with numbers as they are or as objects."""
    jobs, style = draw_jobs(rng), replace(_style(rng), zone=None, old=False)
    objects = rng.random() < 0.5
    listed = []
    for job in jobs:
        line = _submit_line(rng, job, gpus=True)
        for attempt in job.attempts if style.duplicates else job.attempts[-1:]:
            for place, part in enumerate(job.parts):
                parent, _, task = job.id.partition("_")
                tres = []
                for entry in _tres("ordered", part, style.gpus).split(","):
                    key, _, count = entry.partition("=")
                    kind, _, name = key.partition("/")
                    tres.append({"type": kind, "name": name, "id": 1, "count": int(count.rstrip("M"))})
                suspended = job.suspended_s if attempt is job.attempts[-1] else 0
                listed.append(
                    {
                        "job_id": int(parent) + place,
                        "array": {
                            "job_id": int(parent) if task else 0,
                            "task_id": _number(objects, int(task) if task else None),
                        },
                        "het": {
                            "job_id": int(parent) if len(job.parts) > 1 else 0,
                            "job_offset": _number(objects, place if len(job.parts) > 1 else None),
                        },
                        "user": job.user,
                        "account": job.account,
                        "partition": "gpu",
                        "name": job.name,
                        "nodes": folded(part.nodes),
                        "allocation_nodes": len(part.nodes),
                        "required": {"CPUs": part.cpus * len(part.nodes)},
                        "state": {"current": [attempt.state] if objects else attempt.state, "reason": "None"},
                        "restart_cnt": len(job.attempts) - 1,
                        "submit_line": line if style.gpus == "none" or rng.random() < 0.5 else "",
                        "time": {
                            "submission": attempt.submit_s,
                            "eligible": attempt.eligible_s,
                            "start": attempt.start_s,
                            "end": attempt.end_s,
                            "elapsed": attempt.end_s - attempt.start_s - suspended,
                            "suspended": suspended,
                            "limit": {"set": False, "infinite": True, "number": 0}
                            if job.limit_min is None
                            else _number(objects, job.limit_min),
                        },
                        "tres": {"allocated": tres, "requested": tres},
                        "steps": [],
                    }
                )
    document = {"meta": {"plugin": {}}, "jobs": listed, "errors": []}
    path = folder / "sacct.json"
    path.write_text(json.dumps(document, indent=rng.choice((None, 1))))
    return Written(path, _known(_components(jobs), style))


_YEAR_S = 365 * 86400.0


def _queue(rng: Random) -> tuple[list[tuple[TrueJob, bool]], int, list[Known]]:
    """Jobs of which each runs or waits at an instant, the instant, and what a queue says of them."""
    jobs = [replace(job, parts=job.parts[:1]) for job in draw_jobs(rng, again=False) if len(job.attempts) == 1]
    now_s = max([job.arrival_s for job in jobs], default=0) + 6000
    listed, known = [], []
    for job in jobs:
        runs = rng.random() < 0.5
        start_s = now_s - rng.choice((10, 500, 1700))
        attempt = replace(job.attempts[0], start_s=max(start_s, job.attempts[0].eligible_s), eligible_s=job.arrival_s)
        listed.append((replace(job, attempts=(attempt,)), runs))
        limit_s = _YEAR_S if job.limit_min is None else 60.0 * job.limit_min
        known.append(Known.of(job, max(limit_s, now_s - attempt.start_s + 60) if runs else limit_s))
    return listed, now_s, known


def _gres_of(rng: Random, part: Part, runs: bool) -> dict[str, Any]:
    """The GPUs of a job in one of the fields of squeue."""
    if not part.gpus:
        return {}
    total, kind = part.gpus * len(part.nodes), rng.choice(("", f":{part.kind}"))
    start = rng.choice(("gres:gpu", "gres/gpu"))
    fields: dict[str, Any] = rng.choice(
        (
            {"tres_per_node": f"{start}{kind}:{part.gpus}"},
            {"tres_per_job": f"{start}{kind}:{total}"},
            {"tres_per_task": f"{start}{kind}:{part.gpus}"},
        )
    )
    if runs and rng.random() < 0.5:
        fields = fields | {"gres_detail": [f"gpu:{part.kind}:{part.gpus}(IDX:0-{part.gpus - 1})" for _ in part.nodes]}
    return fields


def write_squeue_json(rng: Random, folder: Path) -> Written:
    """``squeue --json`` of several versions."""
    listed, now_s, known = _queue(rng)
    objects, tracked = rng.random() < 0.5, rng.random() < 0.5
    jobs = []
    for job, runs in listed:
        (part,), attempt = job.parts, job.attempts[0]
        parent, _, task = job.id.partition("_")
        tres = _tres("ordered", part, "both" if tracked else "none")
        state = "RUNNING" if runs else "PENDING"
        limit: Any = _number(objects, job.limit_min)
        if job.limit_min is None:
            limit = {"set": False, "infinite": True, "number": 0} if objects else 4294967295
        jobs.append(
            {
                "job_id": int(parent) + int(task or 0),
                "array_job_id": _number(objects, int(parent) if task else 0),
                "array_task_id": _number(objects, int(task) if task else None),
                "array_task_string": "",
                "name": job.name,
                "user_name": job.user,
                "account": job.account,
                "partition": "gpu",
                "job_state": [state] if objects else state,
                "state_reason": "None" if runs else "Priority",
                "submit_time": _number(objects, attempt.submit_s),
                "eligible_time": _number(objects, attempt.eligible_s),
                "start_time": _number(objects, attempt.start_s if runs else 0),
                "time_limit": limit,
                "node_count": _number(objects, len(part.nodes)),
                "tasks": _number(objects, len(part.nodes)),
                "cpus": _number(objects, part.cpus * len(part.nodes)),
                "nodes": folded(part.nodes) if runs else "",
                "tres_req_str": tres,
                "tres_alloc_str": tres if runs else "",
            }
            | ({} if tracked else _gres_of(rng, part, runs))
        )
    document = {"jobs": jobs, "last_update": _number(objects, now_s), "errors": []}
    path = folder / "queue.json"
    path.write_text(json.dumps(document, indent=rng.choice((None, 1))))
    return Written(path, known)


def write_scontrol(rng: Random, folder: Path) -> Written:
    """``scontrol show job`` as text, in blocks or one line each, of 22.05 (TRES) or later (AllocTRES)."""
    listed, now_s, known = _queue(rng)
    zone = rng.choice((None, ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")))
    late, tracked, single = rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.3
    blocks = []
    for job, runs in listed:
        (part,), attempt = job.parts, job.attempts[0]
        parent, _, task = job.id.partition("_")
        name = job.name.replace("\n", " ")
        tres = _tres("ordered", part, "both" if tracked else "none")
        gres = {} if tracked else _gres_of(rng, part, False)
        nodes = len(part.nodes)
        lines = [
            f"JobId={int(parent) + int(task or 0)} "
            + (f"ArrayJobId={parent} ArrayTaskId={task} " if task else "")
            + f"JobName={name}",
            f"UserId={job.user}(1000) GroupId=users(100) MCS_label=N/A",
            f"Priority=7 Nice=0 Account={job.account or '(null)'} QOS=normal",
            f"JobState={'RUNNING' if runs else 'PENDING'} Reason={'None' if runs else 'Resources'} Dependency=(null)",
            f"RunTime={_span(now_s - attempt.start_s if runs else 0)} TimeLimit={_limit(job)} TimeMin=N/A",
            f"SubmitTime={_clock(attempt.submit_s, zone)} EligibleTime={_clock(attempt.eligible_s, zone)}",
            f"StartTime={_clock(attempt.start_s, zone, not runs)} EndTime=Unknown Deadline=N/A",
            f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={_clock(now_s - 1, zone)} Scheduler=Main",
            f"Partition=gpu AllocNode:Sid=login:1 NodeList={folded(part.nodes) if runs else '(null)'}",
            f"NumNodes={nodes}{'-4' * (not runs and nodes < 4)} NumCPUs={part.cpus * nodes} NumTasks={nodes}",
            *([f"ReqTRES={tres}", f"AllocTRES={tres if runs else '(null)'}"] if late else [f"TRES={tres}"]),
            *[_gres_line(rng, key, value) for key, value in gres.items()],
        ]
        blocks.append((" " if single else "\n   ").join(lines))
    path = folder / "scontrol.txt"
    path.write_text(("\n" if single else "\n\n").join(blocks) + "\n")
    return Written(path, known, TraceOptions(timezone=None if zone is None else str(zone)))


def _gres_line(rng: Random, key: str, value: str) -> str:
    """A field of scontrol with GPUs: as it is now, or as before 18.08, which knew a number per node only."""
    if key == "tres_per_node" and rng.random() < 0.3:
        return f"Gres={value.removeprefix('gres:').removeprefix('gres/')} Reservation=(null)"
    return f"Tres{key.removeprefix('tres_').title().replace('_', '')}={value}"


def write_squeue_text(rng: Random, folder: Path) -> Written:
    """``squeue -o`` between bars, of right-aligned columns, or ``--Format`` of 40 characters each."""
    listed, now_s, known = _queue(rng)
    how = rng.choice(("bars", "aligned", "format"))
    names = [
        "JOBID",
        "USER",
        "ACCOUNT",
        "STATE",
        "SUBMIT_TIME",
        "START_TIME",
        "TIME",
        "TIME_LIMIT",
        "NODES",
        "CPUS",
        "TRES_PER_NODE",
    ]
    names += ["NODELIST" if how == "format" else "NODELIST(REASON)"]
    rows = []
    for job, runs in listed:
        (part,), attempt = job.parts, job.attempts[0]
        rows.append(
            [
                job.id,
                job.user,
                job.account or ("" if how == "format" else "none"),
                rng.choice(("RUNNING", "R") if runs else ("PENDING", "PD")),
                _clock(attempt.submit_s, ZoneInfo("UTC")),
                _clock(attempt.start_s, ZoneInfo("UTC")) if runs else "N/A",
                _span(now_s - attempt.start_s if runs else 0),
                _limit(job),
                str(len(part.nodes)),
                str(part.cpus * len(part.nodes)),
                f"gres/gpu:{part.gpus}" if part.gpus else "N/A",
                (folded(part.nodes) if runs else "" if how == "format" else "(Nodes required, or DOWN)"),
            ]
        )
    width = {"format": "{:<40}", "aligned": "{:>36}"}.get(how, "{}")
    text = "".join(
        ("|" if how == "bars" else " " if how == "aligned" else "").join(width.format(cell) for cell in row) + "\n"
        for row in [names, *rows]
    )
    path = folder / "squeue.txt"
    path.write_text(text)
    return Written(path, known)


# PBS, tables and records


def write_pbs(rng: Random, folder: Path) -> Written:
    """Accounting of PBS: reruns, arrays, several kinds of chunks, and demands stated in many ways."""
    lines, known = [], []
    torque = rng.random() < 0.4
    for job in draw_jobs(rng):
        job = replace(job, parts=job.parts[:1]) if torque else job
        id, _, task = job.id.partition("_")
        id = f"{id}[{task}].server" if task else f"{id}.server"
        ways = [_torque_demand(rng, job)] if torque else [_pbs_demand(rng, job)]
        for last, attempt in ((attempt is job.attempts[-1], attempt) for attempt in job.attempts):
            run_s = attempt.end_s - attempt.start_s - (job.suspended_s if last else 0)
            fields = [f"user={job.user}", f"group={job.account or 'users'}", "queue=work", f"ctime={job.arrival_s}",
                      f"qtime={job.arrival_s}", f"etime={attempt.eligible_s}", f"start={attempt.start_s}",
                      f"end={attempt.end_s}", *ways, f"resources_used.walltime={_hours(run_s)}"]  # fmt: skip
            if job.limit_min is not None:
                fields.append(f"Resource_List.walltime={_hours(60 * job.limit_min)}")
            if rng.random() < 0.5:
                fields.insert(2, f'jobname="{job.name.replace(chr(10), " ").replace(chr(34), "")}"')
            stamp = datetime.fromtimestamp(attempt.end_s, UTC).strftime("%m/%d/%Y %H:%M:%S")
            lines.append(f"{stamp};{'E' if last else 'R'};{id};{' '.join(fields)}")
            if rng.random() < 0.5:
                lines.append(f"{stamp};{rng.choice('QSL')};{id};queue=work")
        known.append(Known.of(job))
    path = folder / "20261101"
    path.write_text(rng.choice(("\n", "\r\n")).join([*lines, ""]))
    return Written(path, known)


def _hours(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _pbs_demand(rng: Random, job: TrueJob) -> str:
    """Chunks, or totals if they are even; the nodes may be stated beside."""
    part = job.parts[0]
    nodes, gpus, cpus = len(part.nodes), sum(len(p.nodes) * p.gpus for p in job.parts), part.cpus
    if len(job.parts) == 1 and rng.random() < 0.3:
        return (
            f"Resource_List.ncpus={nodes * cpus} Resource_List.{rng.choice(('ngpus', 'gpus'))}={gpus} "
            f"Resource_List.nodect={nodes}"
        )
    name = rng.choice(("ngpus", "ngpus", "gpus"))
    if rng.random() < 0.2:  # a log that keeps only what was given
        slices = [f"({n}:ncpus={p.cpus}" + (f":ngpus={p.gpus})" if p.gpus else ")") for p in job.parts for n in p.nodes]
        return f"exec_vnode={'+'.join(slices)}"
    chunks = "+".join(f"{len(p.nodes)}:ncpus={p.cpus}" + (f":{name}={p.gpus}" if p.gpus else "") for p in job.parts)
    return f"Resource_List.select={chunks} Resource_List.ncpus=1"


def _torque_demand(rng: Random, job: TrueJob) -> str:
    part = job.parts[0]
    nodes, cpus, gpus = len(part.nodes), part.cpus, part.gpus
    hosts = "+".join(rng.choice((f"{n}/0-{cpus - 1}", f"{n}/0*{cpus}", "+".join(f"{n}/{at}" for at in range(cpus))))
                     for n in part.nodes)  # fmt: skip
    spec = f"{nodes}:ppn={cpus}" + (f":gpus={gpus}" if gpus else "")
    ways = [f"Resource_List.nodes={spec}", f"Resource_List.neednodes={spec}",
            f"Resource_List.nodes={nodes}:ppn={cpus} Resource_List.neednodes={spec}"]  # fmt: skip
    if not gpus:
        ways += [f"Resource_List.procs={nodes * cpus}", ""]
    return f"exec_host={hosts} {rng.choice(ways)}"


def _records(rng: Random) -> tuple[list[dict[str, Any]], list[Known], dict[str, str], ZoneInfo | None]:
    """Records of jobs with one part under foreign names, what they say, and our names of theirs."""
    zone = rng.choice((None, None, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")))
    names = {"id": "Job Nr", "arrival_s": "queued at", "start_s": "Begin", "end_s": "Finish", "gpus": "cards",
             "cpus": "Cores", "nodes": "machines", "duration_s": "Wall", "user": "Owner",
             "tenant": "Group"}  # fmt: skip
    has_duration, has_times = rng.choice(((True, True), (True, False), (False, True)))
    times = rng.choice(("", "", "000", "000000")) if zone is None else ""  # seconds, or smaller units
    is_spread = rng.random() < 0.5
    known, records = [], []
    for job in draw_jobs(rng):
        attempt, part = job.attempts[-1], job.parts[0]
        job = replace(job, parts=(part,), attempts=(attempt,), suspended_s=0)
        total = len(part.nodes)
        record: dict[str, Any] = {
            names["id"]: job.id, names["arrival_s"]: _clock(job.arrival_s, zone) + times, names["user"]: job.user,
            names["gpus"]: total * part.gpus, names["cpus"]: total * part.cpus, names["tenant"]: job.account,
        }  # fmt: skip
        record |= {} if is_spread else {names["nodes"]: total}
        if has_times:
            record |= {names["start_s"]: _clock(attempt.start_s, zone) + times,
                       names["end_s"]: _clock(attempt.end_s, zone) + times}  # fmt: skip
        if has_duration:
            record[names["duration_s"]] = rng.choice((job.work_s, _span(job.work_s)))
        records.append(record)
        known.append(Known.of(job))
    unused = (() if has_times else ("start_s", "end_s")) + (() if has_duration else ("duration_s",))
    unused += ("nodes",) if is_spread else ()
    return records, known, {ours: theirs for ours, theirs in names.items() if ours not in unused}, zone


def _options(names: dict[str, str], zone: ZoneInfo | None) -> TraceOptions:
    mapping = ",".join(f"{ours}={theirs}" for ours, theirs in names.items())
    return TraceOptions(map=mapping, timezone=None if zone is None else zone.key, spread="nodes" not in names)


def write_csv(rng: Random, folder: Path) -> Written:
    """A table of one's own: delimiters, quotes, line breaks in texts, columns in any order, a byte order mark."""
    records, known, names, zone = _records(rng)
    heads = list(records[0])
    if rng.random() < 0.5:
        heads.append("comment")
        records = [{**record, "comment": rng.choice(_PHRASES)} for record in records]
    rng.shuffle(heads)
    text = io.StringIO()
    quoting: Literal[0, 1] = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    table = csv.writer(text, delimiter=rng.choice(",;\t|"), quoting=quoting, lineterminator=rng.choice(("\n", "\r\n")))
    table.writerow(heads)
    table.writerows([[record[head] for head in heads] for record in records])
    path = folder / "jobs.csv"
    path.write_bytes(("\ufeff" * (rng.random() < 0.2) + text.getvalue()).encode())
    return Written(path, known, _options(names, zone))


def write_json(rng: Random, folder: Path) -> Written:
    """Records as JSON: one a line, an array, or an object with a list; some fields nested."""
    records, known, names, zone = _records(rng)
    if rng.random() < 0.5:
        held = [names[ours] for ours in ("gpus", "cpus") if ours in names]
        records = [
            {name: value for name, value in record.items() if name not in held}
            | {"resources": {name: record[name] for name in held}}
            for record in records
        ]
        names |= {ours: f"resources.{names[ours]}" for ours in ("gpus", "cpus")}
    indent = rng.choice((None, 1, 4))
    forms = ("\n".join(map(json.dumps, records)), json.dumps(records, indent=indent), json.dumps({"jobs": records}))
    path = folder / rng.choice(("jobs.json", "jobs.jsonl"))
    path.write_text(rng.choice(forms))
    return Written(path, known, _options(names, zone))


def write_pods(rng: Random, folder: Path) -> Written:
    """Finished pods of Kubernetes: of Jobs and on their own, with sidecars and init containers, in lists or lines."""
    items, known = [], []
    for job in draw_jobs(rng, again=False):
        attempt, part = job.attempts[-1], job.parts[0]
        if not part.gpus:
            continue
        job = replace(job, parts=(part,), attempts=(attempt,), suspended_s=0, user="")
        name = f"j{job.id.replace('_', '-')}"
        for index in range(len(part.nodes)):
            metadata: dict[str, Any] = {
                "name": f"{name}-{index}", "namespace": job.account or "default", "uid": f"{name}-{index}",
                "creationTimestamp": _zulu(job.arrival_s),
            }  # fmt: skip
            if len(part.nodes) > 1 or rng.random() < 0.5:
                kind = "Job" if len(part.nodes) == 1 else "PyTorchJob"
                owner = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": name, "controller": True}
                metadata |= {"ownerReferences": [owner]}
            status = {
                "phase": "Succeeded",
                "conditions": [
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": _zulu(attempt.start_s)}
                ],
                "containerStatuses": [
                    {"name": "main", "state": {"terminated": {
                        "exitCode": 0, "startedAt": _zulu(attempt.start_s), "finishedAt": _zulu(attempt.end_s)}}}
                ],
            }  # fmt: skip
            spec = _pod_spec(rng, part)
            items.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
        known.append(Known.of(job))
    path = folder / "pods.json"
    if rng.random() < 0.3:
        path.write_text("\n".join(map(json.dumps, items)))
    else:
        kind = rng.choice(("List", "PodList"))
        path.write_text(json.dumps({"apiVersion": "v1", "kind": kind, "items": items}, indent=rng.choice((None, 2))))
    return Written(path, known)


def _zulu(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _pod_spec(rng: Random, part: Part) -> dict[str, Any]:
    """Containers that together hold the GPUs and cores of a node's part."""
    gpus = {rng.choice(("nvidia.com/gpu", "amd.com/gpu")): str(part.gpus)}
    beside = rng.choice((0, 250)) if part.cpus > 1 else 0  # a second container's millicores
    cpu = (
        rng.choice((f"{1000 * part.cpus - beside}m", str(part.cpus))) if not beside else f"{1000 * part.cpus - beside}m"
    )
    main: dict[str, Any] = {"limits": gpus | {"cpu": cpu, "memory": f"{part.memory_mb}Mi"}}
    if rng.random() < 0.5:
        main = {"limits": gpus, "requests": gpus | {"cpu": cpu, "memory": f"{part.memory_mb}Mi"}}
    containers = [{"name": "main", "resources": main}]
    spec: dict[str, Any] = {"containers": containers}
    if beside and rng.random() < 0.5:
        containers.append({"name": "log", "resources": {"requests": {"cpu": f"{beside}m"}}})
    elif beside:
        proxy = {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": f"{beside}m"}}}
        spec["initContainers"] = [proxy]
    if rng.random() < 0.3:
        fetch = {"name": "fetch", "resources": {"requests": {"cpu": "100m"}}}
        spec["initContainers"] = [*spec.get("initContainers", []), fetch]
    return spec


# Other batch systems, of which a record is one finished job


def _finished(rng: Random, *, nodes: int | None = None) -> list[tuple[TrueJob, Attempt, Part]]:
    """Jobs of one part and one attempt, on at most ``nodes`` nodes."""
    found = []
    for job in draw_jobs(rng, again=False):
        part = job.parts[0] if nodes is None else replace(job.parts[0], nodes=job.parts[0].nodes[:nodes])
        job = replace(job, parts=(part,), attempts=job.attempts[-1:], suspended_s=0)
        found.append((job, job.attempts[0], part))
    return found


def write_lsf(rng: Random, folder: Path) -> Written:
    """``lsb.acct``: hosts once per slot or in the short form, GPUs as LSF's versions state them, odd texts."""
    lines, known = [], []
    form = rng.choice(("10.1", "9.11"))

    def text(words: str) -> str:
        return '"' + words.replace('"', '""').replace("\n", " ") + '"'

    for job, attempt, part in _finished(rng):
        number, _, index = job.id.partition("_")
        held = [node for node in part.nodes for _ in range(part.cpus)]
        if rng.random() < 0.5:
            held = [f"{part.cpus}*{node}" for node in part.nodes]
        gpus = rng.choice(
            (
                f"rusage[ngpus_physical={part.gpus}.00]",
                f"rusage[ngpus={part.gpus}]",
                f"rusage[ngpus_excl_p={part.gpus}.00,mem=4096.00]",
            )
        )
        requirement = f"select[type == local] {gpus if part.gpus else ''}span[ptile={part.cpus}]"
        asked = rng.choice((["n01"], [], ["n01", "n02"]))
        fields = [
            text("JOB_FINISH"), text(form), attempt.end_s, number, 1000, 33816578, part.cpus * len(part.nodes),
            attempt.submit_s, rng.choice((0, attempt.eligible_s)), 0, attempt.start_s, text(job.user), text("normal"),
            text(requirement), text(""), text(""), text("login"), text("/home/x y"), text(""), text("out"), text(""),
            text(f"{attempt.submit_s}.{number}"), len(asked), *map(text, asked), len(held), *map(text, held),
            rng.choice((64, 32)), 60.0, text(job.name), text(rng.choice(_PHRASES)), *[rng.choice((-1, 0.5))] * 19,
            text(""), text(job.account or "default"), 0, part.cpus, text(""), text(""), index or 0, 1024, 2048,
            text(""), text(""), text(""), text(""), 0, text(""), 0, text(""), -1, text(""), text(""), text("app"),
        ]  # fmt: skip
        lines.append(" ".join(map(str, fields)))
        if rng.random() < 0.2:
            lines.append(f'"JOB_RESIZE" "{form}" {attempt.end_s} {number} 0 0 "" 0')
        known.append(Known.of(job))
    path = folder / "lsb.acct"
    path.write_text("\n".join(lines) + "\n")
    return Written(path, known)


def write_gridengine(rng: Random, folder: Path) -> Written:
    """Grid Engine's accounting: seconds or milliseconds, categories with colons, slaves of parallel jobs."""
    lines, known = [], []
    milli = rng.choice((1, 1000))
    for job, attempt, part in _finished(rng, nodes=1):
        number, _, task = job.id.partition("_")
        category = (
            [f"-l {rng.choice(('gpu', 'ngpus', 'GPU', f'gpu_{part.kind}', part.kind))}={part.gpus}"]
            if part.gpus
            else []
        )
        category += ["-l h_rt=24:00:00"] * (rng.random() < 0.5) + [f"-U staff -pe smp {part.cpus}"]
        one = [
            "all.q", part.nodes[0], "users", job.user, rng.choice(("job", "a job")), number, job.account or "sge", 0,
            attempt.submit_s * milli, attempt.start_s * milli, attempt.end_s * milli, 0, 0,
            attempt.end_s - attempt.start_s, *["0"] * 17, "NONE", "defaultdepartment", "smp", part.cpus, task or 0,
            0.0, 0.0, 0.0, " ".join(category), 0.0, "NONE", 0.0, 0, 0,
        ]  # fmt: skip
        lines.append(":".join(map(str, one)))
        if rng.random() < 0.2:  # a slave task of it, which counts in the job
            slave = [*one]
            slave[41] = f"1.{part.nodes[0]}"
            lines.append(":".join(map(str, slave)))
        known.append(Known.of(job))
    path = folder / "accounting"
    path.write_text("# Version: 8.1.9\n" * (rng.random() < 0.5) + "\n".join(lines) + "\n")
    return Written(path, known)


def write_htcondor(rng: Random, folder: Path) -> Written:
    """``condor_history``: as JSON, as ads of one attribute a line, or as the history file with banners."""
    ads, known = [], []
    for job, attempt, part in _finished(rng, nodes=1):
        if attempt.end_s == attempt.start_s:
            continue
        number, _, process = job.id.partition("_")
        ad: dict[str, Any] = {
            "ClusterId": int(number), "ProcId": int(process or 0), "Owner": job.user, "QDate": attempt.submit_s,
            "JobStatus": rng.choice((4, 3)), "JobCurrentStartDate": attempt.start_s, "NumJobStarts": 1,
            "CompletionDate": attempt.end_s, "EnteredCurrentStatus": attempt.end_s,
            "RemoteWallClockTime": float(attempt.end_s - attempt.start_s), "RequestCpus": part.cpus,
            "RequestMemory": part.memory_mb, "LastRemoteHost": f"slot1_2@{part.nodes[0]}", "JobUniverse": 5,
            "Cmd": "/bin/x", "Args": job.name.replace("\n", " "),
        }  # fmt: skip
        if part.gpus and rng.random() < 0.2:
            ad["AssignedGPUs"] = ",".join(f"CUDA{at}" for at in range(part.gpus))
        else:
            ad |= {"RequestGPUs": part.gpus} if part.gpus or rng.random() < 0.3 else {}
        if rng.random() < 0.5:
            ad |= {"CpusProvisioned": part.cpus} | ({"GPUsProvisioned": part.gpus} if part.gpus else {})
        entries = list(ad.items())
        rng.shuffle(entries)
        ads.append(dict(entries))
        known.append(Known.of(job))
    how = rng.choice(("json", "long", "file", "jobs", "joined"))
    path = folder / ("history.json" if how == "json" else "history")
    if how == "json":
        path.write_text(json.dumps(ads, indent=rng.choice((None, 1))))
    else:
        ends = [f"*** Offset = 0 ClusterId = {ad['ClusterId']}" if how == "file" else "" for ad in ads]
        blocks = ["\n".join(f"{key} = {json.dumps(value)}" for key, value in ad.items()) for ad in ads]
        if how in ("jobs", "joined"):  # PER_JOB_HISTORY_DIR: nothing separates them, and attributes are set again
            blocks = [f'MyType = "Job"\nRemoteWallClockTime = 0.0\n{block}\n' for block in blocks]
            if how == "joined":
                path.write_text("".join(blocks))
                return Written(path, known)
            path.mkdir()
            for at, block in enumerate(blocks):
                (path / f"history.{at}.0").write_text(block)
            return Written(path, known)
        path.write_text("".join(f"{block}\n{end}\n" for block, end in zip(blocks, ends, strict=True)))
    return Written(path, known)


def write_flux(rng: Random, folder: Path) -> Written:
    """``flux jobs -a --json``: counts, or the summary of resources alone; states as words or numbers."""
    jobs, known, as_numbers = [], [], rng.random() < 0.3
    for job, attempt, part in _finished(rng):
        nodes = len(part.nodes)
        entry: dict[str, Any] = {
            "id": f"f{job.id}", "userid": 1000, "username": job.user, "urgency": 16, "priority": 16,
            "t_submit": float(attempt.submit_s), "t_depend": attempt.eligible_s + 0.0, "t_run": attempt.start_s + 0.0,
            "t_cleanup": attempt.end_s + 0.0, "t_inactive": attempt.end_s + 0.25, "state": "INACTIVE",
            "name": job.name, "nnodes": nodes, "nodelist": folded(part.nodes), "ranks": f"[0-{nodes - 1}]",
            "duration": 60.0 * (job.limit_min or 0), "bank": job.account, "queue": "batch", "result": "COMPLETED",
        }  # fmt: skip
        entry |= {"state": 64, "result": 1} if as_numbers else {}
        if rng.random() < 0.7:
            entry |= {"ncores": nodes * part.cpus, "ngpus": nodes * part.gpus}
        else:
            cores = f"core[0-{part.cpus - 1}]" + (f",gpu[0-{part.gpus - 1}]" if part.gpus else "")
            summary = f"rank[0-{nodes - 1}]/{cores}"
            summary = " ".join(f"rank{at}/{cores}" for at in range(nodes)) if rng.random() < 0.5 else summary
            entry |= {"annotations": {"sched": {"resource_summary": summary}}}
        jobs.append(entry)
        known.append(Known.of(job))
    path = folder / "flux.json"
    path.write_text(json.dumps({"jobs": jobs}, indent=rng.choice((None, 1))))
    return Written(path, known)


def write_qstat(rng: Random, folder: Path) -> Written:
    """Finished jobs of ``qstat -x -f``, as text with broken lines, as delimited text or as JSON, with local dates;
    GPUs of some sites are in the arguments of qsub alone.
    """
    zone = rng.choice((ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")))
    in_text, as_json = rng.random() < 0.3, rng.random() < 0.5
    jobs, known = {}, []

    def clock(seconds: int) -> str:
        return datetime.fromtimestamp(seconds, UTC).astimezone(zone).strftime("%a %b %e %H:%M:%S %Y")

    for job, attempt, part in _finished(rng):
        number, _, task = job.id.partition("_")
        nodes = len(part.nodes)
        own = f":ngpus={part.gpus}" if part.gpus else ""
        select = f"{nodes}:ncpus={part.cpus}"
        line = f"-q work -l select={select}{own} run.sh"
        if as_json and rng.random() < 0.5:
            line = "".join(f"<jsdl-hpcpa:Argument>{word}</jsdl-hpcpa:Argument>" for word in line.split())
        jobs[f"{number}[{task}].srv" if task else f"{number}.srv"] = {
            "Job_Name": job.name.replace("\n", " "), "Job_Owner": f"{job.user}@login", "job_state": "F",
            "queue": "work", "ctime": clock(attempt.submit_s), "qtime": clock(attempt.submit_s),
            "etime": clock(attempt.eligible_s), "stime": clock(attempt.start_s), "obittime": clock(attempt.end_s),
            "resources_used.walltime": _hours(attempt.end_s - attempt.start_s), "Account_Name": job.account,
            "Resource_List.ncpus": str(nodes * part.cpus), "Resource_List.nodect": str(nodes),
            "Resource_List.select": select + ("" if in_text else own), "Submit_arguments": line,
            "exec_host": "+".join(f"{node}/0*{part.cpus}" for node in part.nodes),
        }  # fmt: skip
        known.append(Known.of(job))
    path = folder / ("qstat.json" if as_json else "qstat.txt")
    if as_json:
        nested: dict[str, Any] = {}
        for id, fields in jobs.items():
            nested[id] = {}
            for key, value in fields.items():
                outer, _, inner = key.partition(".")
                if inner:
                    nested[id].setdefault(outer, {})[inner] = value
                else:
                    nested[id][key] = value
        document = {"timestamp": 1, "pbs_version": "2022.1.1", "pbs_server": "srv", "Jobs": nested}
        path.write_text(json.dumps(document, indent=rng.choice((1, 4))))
    elif rng.random() < 0.2:  # -F dsv
        texts = []
        for id, fields in jobs.items():
            values = [f"{key}={value}".replace("|", r"\|") for key, value in fields.items()]
            texts.append("|".join([f"Job Id: {id}", *values]) + "\n")
        path.write_text("".join(texts))
    else:
        lines, rest = [""] * rng.randint(0, 1), rng.choice(("\t", " " * 8))
        for id, fields in jobs.items():
            lines.append(f"Job Id: {id}")
            for key, value in fields.items():
                words = f"    {key} = {value}"
                cut = 70 if len(words) > 79 else len(words)
                lines += [words[:cut], *[rest + words[at : at + 60] for at in range(cut, len(words), 60)]]
            lines.append("")
        path.write_text("\n".join(lines) + "\n")
    return Written(path, known, TraceOptions(timezone=zone.key))


WRITERS: dict[str, Callable[[Random, Path], Written]] = {
    "csv": write_csv,
    "flux": write_flux,
    "gridengine": write_gridengine,
    "htcondor": write_htcondor,
    "json": write_json,
    "lsf": write_lsf,
    "pbs": write_pbs,
    "pods": write_pods,
    "qstat": write_qstat,
    "sacct": write_sacct,
    "sacct-folder": write_sacct_folder,
    "sacct-json": write_sacct_json,
    "scontrol": write_scontrol,
    "squeue-json": write_squeue_json,
    "squeue-text": write_squeue_text,
}
"""Writers by name. Each draws jobs and writes them; it knows what a reader can know of them."""


def differences(written: Written) -> tuple[list[str], Trace]:
    """Read a file, and name what differs from the truth."""
    trace = open_trace(written.path, options=written.options)
    jobs = list(trace.jobs())
    read = [
        Known(
            job.arrival_s,
            max(task.work for task in job.tasks),
            sum(task.instances * task.gpus for task in job.tasks),
            sum(task.instances * task.cpus for task in job.tasks),
            job.user,
        )
        for job in jobs
    ]
    first = min(known.arrival_s for known in written.known)
    true = [replace(known, arrival_s=known.arrival_s - first) for known in written.known]
    found = []
    sums: tuple[tuple[str, Callable[[list[Known]], Any]], ...] = (
        ("jobs", len),
        ("GPU-hours", lambda listed: sum(known.gpus * known.seconds for known in listed) / 3600),
        ("core-hours", lambda listed: sum(known.cores * known.seconds for known in listed) / 3600),
        ("arrivals", lambda listed: sorted(known.arrival_s for known in listed)),
        ("durations", lambda listed: sorted(known.seconds for known in listed)),
        ("users", lambda listed: sorted(known.user for known in listed)),
    )
    for what, of in sums:
        ours, theirs = of(read), of(true)
        equal = isclose(ours, theirs, rel_tol=1e-9) if isinstance(ours, float) else ours == theirs
        if not equal:
            found.append(f"{what}: {ours!r} instead of {theirs!r}"[:240])
    return found, trace


def _work(options: command.Options, say: command.Say) -> dict[str, dict[str, int]]:
    names = options.writer or list(WRITERS)
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for seed in range(options.first, options.first + options.count):
        name = names[seed % len(names)]
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            written = WRITERS[name](Random(f"{name} {seed}"), folder)
            if not written.known:
                continue
            notes: dict[str, int] = {}
            try:
                found, trace = differences(written)
                notes = dict(trace.report.dropped + trace.report.noted)
                outcome = "equal" if not found else "told" if notes else "silent"
            except DagsimError as error:
                found, outcome = [str(error)], "refused"
            counts[name][outcome] += 1
            if options.show or outcome in ("silent", "refused") or (options.told and outcome == "told"):
                say(f"{outcome}: --writer {name} --first {seed} --count 1: {'; '.join(found)} {notes or ''}")
            for file in sorted(folder.iterdir()) if options.show else ():
                say(file.read_bytes().decode(errors="replace")[:_SHOWN])
    rows = [[name, count.total(), *(count[key] for key in _OUTCOMES)] for name, count in counts.items()]
    say("\n".join(command.markdown(["writer", "variants", *_OUTCOMES], rows, range(1, 6))))
    return {name: dict(count) for name, count in counts.items()}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--count", type=int, default=600, help="variants, of all writers in turn")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--writer", choices=sorted(WRITERS), action="append", help="only this one; repeatable")
    parser.add_argument("--show", action="store_true", help="print every variant and its files")
    parser.add_argument("--told", action="store_true", help="print differences that a note or a dropped row tells of")
    return command.run(
        parser, _work, lambda counts: not any({"silent", "refused"} & set(count) for count in counts.values())
    )


if __name__ == "__main__":
    raise SystemExit(main())
