"""Accounting and finished jobs of PBS and Torque."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from dagsim.traces import TraceOptions
from log_writers.jobs import Known, TrueJob, Written, draw_jobs, finished


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


def write_qstat(rng: Random, folder: Path) -> Written:
    """Finished jobs of ``qstat -x -f``, as text with broken lines, as delimited text or as JSON, with local dates;
    GPUs of some sites are in the arguments of qsub alone.
    """
    zone = rng.choice((ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")))
    in_text, as_json = rng.random() < 0.3, rng.random() < 0.5
    jobs, known = {}, []

    def clock(seconds: int) -> str:
        return datetime.fromtimestamp(seconds, UTC).astimezone(zone).strftime("%a %b %e %H:%M:%S %Y")

    for job, attempt, part in finished(rng):
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
