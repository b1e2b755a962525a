"""Tables and JSON of one's own."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Literal
from zoneinfo import ZoneInfo

from dagsim.traces import TraceOptions
from log_writers.jobs import PHRASES, Known, Written, clock, draw_jobs, span


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
            names["id"]: job.id, names["arrival_s"]: clock(job.arrival_s, zone) + times, names["user"]: job.user,
            names["gpus"]: total * part.gpus, names["cpus"]: total * part.cpus, names["tenant"]: job.account,
        }  # fmt: skip
        record |= {} if is_spread else {names["nodes"]: total}
        if has_times:
            record |= {names["start_s"]: clock(attempt.start_s, zone) + times,
                       names["end_s"]: clock(attempt.end_s, zone) + times}  # fmt: skip
        if has_duration:
            record[names["duration_s"]] = rng.choice((job.work_s, span(job.work_s)))
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
        records = [{**record, "comment": rng.choice(PHRASES)} for record in records]
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
