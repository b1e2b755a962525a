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

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import isclose
from pathlib import Path
from random import Random
from typing import Any

import command
from log_writers.batch import write_flux, write_gridengine, write_htcondor, write_lsf
from log_writers.jobs import Known, Written
from log_writers.kubernetes import write_pods
from log_writers.own_tables import write_csv, write_json
from log_writers.pbs import write_pbs, write_qstat
from log_writers.slurm import (
    write_sacct,
    write_sacct_folder,
    write_sacct_json,
    write_scontrol,
    write_squeue_json,
    write_squeue_text,
)

from dagsim.errors import DagsimError
from dagsim.traces import Trace, open_trace

_OUTCOMES = ("equal", "told", "refused", "silent")
_SHOWN = 6000  # characters of a file
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
