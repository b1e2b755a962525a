"""Accounting of batch systems of which a record is one finished job."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from dagsim.traces.sites import folded
from log_writers.jobs import PHRASES, Known, Written, finished


def write_lsf(rng: Random, folder: Path) -> Written:
    """``lsb.acct``: hosts once per slot or in the short form, GPUs as LSF's versions state them, odd texts."""
    lines, known = [], []
    form = rng.choice(("10.1", "9.11"))

    def text(words: str) -> str:
        return '"' + words.replace('"', '""').replace("\n", " ") + '"'

    for job, attempt, part in finished(rng):
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
            rng.choice((64, 32)), 60.0, text(job.name), text(rng.choice(PHRASES)), *[rng.choice((-1, 0.5))] * 19,
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
    for job, attempt, part in finished(rng, nodes=1):
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
    for job, attempt, part in finished(rng, nodes=1):
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
    for job, attempt, part in finished(rng):
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
