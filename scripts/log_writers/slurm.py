"""Logs and queues as Slurm's commands print them."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from dagsim.traces import TraceOptions
from dagsim.traces.sites import folded
from log_writers.jobs import PHRASES, Known, Part, TrueJob, Written, clock, draw_jobs, span


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


def _limit(job: TrueJob) -> str:
    return "UNLIMITED" if job.limit_min is None else span(60 * job.limit_min)


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
                    "Submit": clock(attempt.submit_s, style.zone),
                    "Eligible": clock(attempt.eligible_s, style.zone),
                    "Start": clock(attempt.start_s, style.zone),
                    "End": clock(attempt.end_s, style.zone),
                    "ElapsedRaw": str(elapsed),
                    "Elapsed": span(elapsed),
                    "Suspended": span(suspended),
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
                    "Comment": rng.choice(("", *PHRASES)),
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
            "Submit": clock(at, style.zone),
            "Eligible": clock(at, style.zone),
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
            f"RunTime={span(now_s - attempt.start_s if runs else 0)} TimeLimit={_limit(job)} TimeMin=N/A",
            f"SubmitTime={clock(attempt.submit_s, zone)} EligibleTime={clock(attempt.eligible_s, zone)}",
            f"StartTime={clock(attempt.start_s, zone, not runs)} EndTime=Unknown Deadline=N/A",
            f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={clock(now_s - 1, zone)} Scheduler=Main",
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
                clock(attempt.submit_s, ZoneInfo("UTC")),
                clock(attempt.start_s, ZoneInfo("UTC")) if runs else "N/A",
                span(now_s - attempt.start_s if runs else 0),
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
