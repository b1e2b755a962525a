"""Listings of the queue as ``squeue --json`` prints them, made from the log of a recorded Slurm site.

    python scripts/make_snapshots.py SITE OUT [--every 60] [--shift 0] [--limit N]

SITE is a folder like ``golden/slurm/site-A``: accounting (``sacct-aDX.txt``, ``sacct-extra.txt``), the queue over time
(``squeue.tsv.gz``) and the submissions (``submit.tsv``). OUT gets a file per instant, ``EPOCH.json``, with its time as
time of modification. Requests come from accounting, reasons, priorities and estimates from the queue. ``--shift``
adds seconds to all times, so that several runs can follow each other.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, str]


def rows_of(path: Path) -> Iterator[Row]:
    """Yield the rows of a table with columns between bars; a constraint may hold bars itself."""
    content = path.read_bytes()
    lines = (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()
    names = lines[0].split("|")
    for line in lines[1:]:
        fields = line.split("|")
        if "Constraints" in names and (more := len(fields) - len(names)) > 0:
            at = names.index("Constraints")
            fields = [*fields[:at], "|".join(fields[at : at + more + 1]), *fields[at + more + 1 :]]
        yield dict(zip(names, fields, strict=False))


class RecordedSite:
    """The log of a recorded site."""

    def __init__(self, folder: Path, shift_s: float = 0.0) -> None:
        self.folder, self._shift = folder, int(shift_s)
        extra = {row["JobID"]: row for row in rows_of(folder / "sacct-extra.txt")}
        self._rows: dict[str, list[Row]] = {}
        for row in rows_of(folder / "sacct-aDX.txt"):
            self._rows.setdefault(row["JobID"], []).append(extra.get(row["JobID"], {}) | row)
        self._submitted = {}
        for line in (folder / "submit.tsv").read_text().splitlines()[1:]:
            epoch, _, _, job, user, _, args = line.split("\t")
            self._submitted[job] = (float(epoch), user, args)
        self.queue: dict[int, list[Row]] = {}
        """The rows of the queue by time."""
        for row in rows_of(folder / "squeue.tsv.gz"):
            self.queue.setdefault(int(row["epoch"]), []).append(row)
        self._accounts = {row["User"]: row["Account"] for rows in self._rows.values() for row in rows}

    def snapshot(self, epoch: int, *, reasons: bool = True) -> dict[str, Any]:
        """The queue at an instant, with or without the scheduler's reasons."""
        rows = self.queue[epoch]
        jobs = [self._job(row, epoch, {one["jobid"].partition("_")[0] for one in rows}) for row in rows]
        if not reasons:
            for job in jobs:
                job["state_reason"] = "None"
        return {"jobs": jobs, "last_update": epoch + self._shift}

    def _job(self, row: Row, epoch: int, present: set[str]) -> dict[str, Any]:
        id, waits = row["jobid"], row["state"] in ("PD", "PENDING")
        array, _, task = id.partition("_")
        own = [one for one in self._rows.get(id, []) if int(one["Submit"]) <= epoch] or self._any(array)
        facts = own[-1] if own else self._from_submission(array)
        words = options(facts.get("SubmitLine", ""))
        reason = row["reason"] if waits else "None"
        start = row["start_or_estimate"]
        eligible = facts.get("Eligible", "")
        is_later = waits and reason == "BeginTime" and eligible.isdigit()
        conditions = words.get("dependency", "") if waits and reason.startswith("Dependency") else ""
        suffix = "(failed)" if reason == "DependencyNeverSatisfied" else "(unfulfilled)"
        open_ = [part for part in re.split("[,?]", conditions) if _parent(part) in present or suffix == "(failed)"]
        mark = "?" if "?" in conditions else ","
        limit = facts.get("TimelimitRaw", "")
        tres = facts.get("ReqTRES", "")
        held, shifted = "" if waits else facts.get("AllocTRES", "") or tres, self._shift
        return {
            "job_id": int(array),
            "array_job_id": int(array) if task else 0,
            "array_task_id": int(task) if task.isdigit() else None,
            "array_task_string": task.strip("[]") if task and not task.isdigit() else "",
            "array_max_tasks": int(words.get("array", "").partition("%")[2] or 0),
            "name": "wrap",
            "user_name": facts["User"],
            "account": facts["Account"],
            "partition": words.get("partition", facts["Partition"]) if waits else facts["Partition"],
            "qos": facts["QOS"],
            "job_state": [{"PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED"}.get(row["state"], "COMPLETING")],
            "state_reason": reason,
            "priority": int(row["priority"] or 0),
            "dependency": mark.join(f"{part}{suffix}" for part in (open_ or ([conditions] if conditions else []))),
            "submit_time": int(facts["Submit"]) + shifted,
            "eligible_time": (
                int(eligible) + shifted if is_later else 0 if conditions else int(facts["Submit"]) + shifted
            ),
            "start_time": int(start) + shifted if start.isdigit() else 0,
            "time_limit": int(limit) if limit.isdigit() else {"infinite": True},
            "node_count": _count(held or tres, "node"),
            "cpus": _count(held or tres, "cpu"),
            "tres_req_str": tres,
            "tres_alloc_str": held,
            "tres_per_node": f"gres:{words['gres']}" if "gres" in words and "gres/gpu" not in tres else "",
            "nodes": "" if waits else row["nodes"],
            "features": words.get("constraint", ""),
            "resv_name": words.get("reservation", ""),
            "licenses": words.get("licenses", ""),
            "shared": {"yes": "none", "node": "none", "user": "user"}.get(words.get("exclusive", ""), ""),
        }

    def _any(self, array: str) -> list[Row]:
        """The rows of any task of an array."""
        return next((rows for id, rows in self._rows.items() if id.partition("_")[0] == array), [])

    def _from_submission(self, job: str) -> Row:
        """A job without accounting: one whose dependency was never fulfilled."""
        epoch, user, args = self._submitted[job]
        words = options(f"sbatch {args}")
        nodes = words.get("nodes", "1").partition("-")[0]
        tasks = int(words.get("ntasks") or int(nodes) * int(words.get("ntasks-per-node", "1")))
        cpus = tasks * int(words.get("cpus-per-task", "1"))
        return {
            "User": user,
            "Account": words.get("account") or self._accounts.get(user, ""),
            "Partition": words.get("partition", ""),
            "QOS": words.get("qos", "normal"),
            "Submit": str(int(epoch)),
            "Eligible": "",
            "TimelimitRaw": words.get("time", "60"),
            "ReqTRES": f"cpu={cpus},node={nodes}",
            "SubmitLine": f"sbatch {args}",
        }


_SHORT = {
    "p": "partition", "q": "qos", "t": "time", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "C": "constraint",
    "d": "dependency", "a": "array", "L": "licenses", "A": "account",
}  # fmt: skip


def options(line: str) -> dict[str, str]:
    """The options of a submission by their long names."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            found[name[2:]] = value if equals else "yes"
        elif name.startswith("-") and name[1:2] in _SHORT:
            found[_SHORT[name[1]]] = word[2:] or (words[place + 1] if place + 1 < len(words) else "")
    return found


def _parent(condition: str) -> str:
    match = re.search(r":(\d+)", condition)
    return match[1] if match else ""


def _count(tres: str, name: str) -> int:
    match = re.search(rf"(?:^|,){name}=(\d+)", tres)
    return int(match[1]) if match else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--every", type=float, default=60.0, help="least seconds between two snapshots")
    parser.add_argument("--shift", type=float, default=0.0, help="seconds to add to all times")
    parser.add_argument("--limit", type=int, help="number of snapshots")
    given = parser.parse_args()
    site = RecordedSite(given.site, given.shift)
    given.out.mkdir(parents=True, exist_ok=True)
    last, made = -given.every, 0
    for epoch in sorted(site.queue):
        if epoch - last < given.every - 5 or made == given.limit:
            continue
        last, made = epoch, made + 1
        path = given.out / f"{epoch + int(given.shift)}.json"
        path.write_text(json.dumps(site.snapshot(epoch)))
        os.utime(path, (epoch + given.shift,) * 2)
    print(f"{made} snapshots in {given.out}")


if __name__ == "__main__":
    main()
