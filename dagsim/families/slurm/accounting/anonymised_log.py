"""Anonymised copies of Slurm's accounting: no names of people or machines, and only the columns
that dagsim reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dagsim.families.site.anonymise import Names
from dagsim.families.slurm.accounting.accounting_rows import COLUMNS, AccountingRow, sacct_rows
from dagsim.families.slurm.accounting.accounting_values import gpus_of_gres
from dagsim.families.slurm.accounting.submission import RELATIVE_BEGIN, Submission, submission
from dagsim.model import Condition, Request
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source

_KEPT = (
    *("JobIDRaw", "JobID", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "Elapsed", "Suspended"),
    *("TimelimitRaw", "Timelimit", "NNodes", "ReqNodes", "NCPUS", "ReqCPUS", "ReqMem", "Restarts"),
)
"""Columns that are copied: numbers, times and words of Slurm. All others are replaced, or left empty."""
_RESOURCES = ("billing=", "cpu=", "gres/gpu=", "gres/gpu:", "gres/shard", "license/", "mem=", "node=")
_TIME = re.compile(rf"{RELATIVE_BEGIN.pattern}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:T[0-9:.]+)?")


def sacct_lines(source: Source, names: Names) -> Iterator[str]:
    """Yield the lines of an anonymised copy. Job steps and damaged rows are left out."""
    yield "|".join(COLUMNS) + "\n"
    for _, cells in sacct_rows(source, ReadReport(), None):
        row = AccountingRow._make(cells)
        if "." in (row.JobID or row.JobIDRaw).partition("[")[0]:
            continue
        copy = _copy(row, names)
        # Vertical bars may remain in these columns: they split the field, but the reader joins the
        # parts again.
        free = ("Constraints", "SubmitLine")
        texts = [text if name in free else text.replace("|", " ") for name, text in copy._asdict().items()]
        yield "|".join(text.replace("\n", " ") for text in texts) + "\n"


def _copy(row: AccountingRow, names: Names) -> AccountingRow:
    """Return a row with pseudonyms for all names."""
    terms = submission(row.SubmitLine, row.Constraints, row.Reservation, row.Partition, ())
    return AccountingRow(**{column: getattr(row, column) for column in _KEPT})._replace(
        User=names.new("user", row.User),
        Account=names.new("account", row.Account),
        QOS=names.new("qos", row.QOS),
        Cluster=names.new("cluster", row.Cluster),
        Partition=",".join(names.new("partition", partition) for partition in row.Partition.split(",")),
        NodeList=names.nodes(row.NodeList),
        ReqTRES=_tres(row.ReqTRES, names),
        AllocTRES=_tres(row.AllocTRES, names),
        ReqGRES=gpus_of_gres(row.ReqGRES),
        AllocGRES=gpus_of_gres(row.AllocGRES),
        Constraints=names.constraint(terms.request.constraint) if terms.request else "",
        Reservation=names.new("reservation", terms.request.reservation) if terms.request else "",
        # write a new command line, because the original may contain names and paths
        SubmitLine=_submit_line(terms, names),
        # drop the user's number in ``CANCELLED by 1007``
        State=(row.State.split() or [""])[0],
    )


def _tres(listed: str, names: Names) -> str:
    """Return a list of resources with pseudonyms for licences, and without resources that dagsim does
    not read, because their names could identify the site."""
    parts = []
    for part in listed.split(","):
        licence, mark, count = part.removeprefix("license/").partition("=")
        if part.startswith("license/"):
            part = f"license/{names.new('licence', licence)}{mark}{count}"
        parts += [part] * part.startswith(_RESOURCES)
    return ",".join(parts)


def _submit_line(terms: Submission, names: Names) -> str:
    """Return a job's submit line, reduced to the options that dagsim reads, with pseudonyms for all
    names."""
    request = terms.request
    if request is None and not terms.nice and not terms.name and not terms.begin:
        return ""
    words = ["sbatch"] + ([f"--nice={terms.nice:.0f}"] if terms.nice else [])
    if request is not None:
        words += ["-p " + ",".join(names.new("partition", one) for one in request.partitions)] * bool(
            request.partitions
        )
        licences = ",".join(f"{names.new('licence', name)}:{count}" for name, count in request.licences)
        words += [f"-L {licences}"] * bool(licences) + ["--exclusive"] * request.exclusive
        words += [f"-d {_dependency(request)}"] * bool(request.after)
        words += [f"--array=0-1%{request.array_limit}"] * (request.array_limit is not None)
    words += [f"--begin={terms.begin}"] * bool(_TIME.fullmatch(terms.begin))
    if terms.name:
        words.append(f"-J {names.new('job', terms.name)}")
    words += ["-d singleton"] * terms.singleton
    if terms.tasks is not None:
        words.append(f"-n {terms.tasks}")
        if request is not None and request.least_nodes is not None:
            words.append(f"-N {request.least_nodes}-{request.most_nodes}")
    elif request is not None and request.spread is not None:
        words.append("-N 1")
    return " ".join(words)


def _dependency(request: Request) -> str:
    """Return a job's dependencies in sbatch's syntax."""
    conditions = [Condition.of(text) for text in request.after]
    words = [
        f"after:{id}" + (f"+{delay_s / 60:.0f}" if delay_s else "") if starts else f"afterany:{id}"
        for id, starts, delay_s in conditions
    ]
    return ("?" if request.after_one else ",").join(words)
