"""Anonymised copies of Slurm's accounting: no names of people or machines, and only the columns
that dagsim reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dagsim.families.site.anonymise import Names
from dagsim.families.slurm.accounting.accounting_rows import COLUMNS, sacct_rows
from dagsim.families.slurm.accounting.accounting_values import licences_or_none
from dagsim.families.slurm.accounting.submission import Submission, submission
from dagsim.model import Condition, Request
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source

_KINDS = {"User": "user", "Account": "account", "QOS": "qos"}
_KEPT = frozenset(
    (
        *("JobIDRaw", "JobID", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "Suspended", "TimelimitRaw"),
        *("NNodes", "ReqNodes", "NCPUS", "ReqMem", "Priority", "Reason", "Flags"),
    )
)
"""Columns that are copied: numbers, times and words of Slurm. All others are replaced, or left empty."""
_RESOURCES = ("billing=", "cpu=", "gres/", "mem=", "node=")


def sacct_lines(source: Source, names: Names) -> Iterator[str]:
    """Yield the lines of an anonymised copy. Job steps and damaged rows are left out."""
    yield "|".join(COLUMNS) + "\n"
    for _, row in sacct_rows(source, ReadReport(), None):
        told = dict(zip(COLUMNS, row, strict=True))
        if "." in (told["JobID"] or told["JobIDRaw"]).partition("[")[0]:
            continue
        fields = {column: text if column in _KEPT else "" for column, text in told.items()}
        for column, kind in _KINDS.items():
            fields[column] = names.new(kind, told[column])
        fields["Partition"] = ",".join(names.new("partition", partition) for partition in told["Partition"].split(","))
        fields["NodeList"] = names.nodes(told["NodeList"])
        for column in ("ReqTRES", "AllocTRES"):  # drop licences, because their names could identify the site
            fields[column] = ",".join(part for part in told[column].split(",") if part.startswith(_RESOURCES))
        asked = licences_or_none(fields["ReqTRES"])
        terms = submission(told["SubmitLine"], told["Constraints"], told["Reservation"], told["Partition"], asked)
        fields["Constraints"] = names.constraint(terms.request.constraint) if terms.request else ""
        fields["Reservation"] = names.new("reservation", terms.request.reservation) if terms.request else ""
        # write a new command line, because the original may contain names and paths
        fields["SubmitLine"] = _submit_line(terms, names)
        # drop the user's number in ``CANCELLED by 1007``
        fields["State"] = (told["State"].split() or [""])[0]
        # Vertical bars may remain in these columns: they split the field, but the reader joins the
        # parts again.
        free = ("Constraints", "SubmitLine")
        cells = [text if name in free else text.replace("|", " ") for name, text in fields.items()]
        yield "|".join(text.replace("\n", " ") for text in cells) + "\n"


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
    words += [f"--begin={terms.begin}"] * bool(re.match(r"now|\d{4}-\d\d-\d\d", terms.begin))
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
