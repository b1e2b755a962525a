"""The kinds of files and listings of a Slurm site. Each file is recognised by its content."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dagsim.errors import TraceError
from dagsim.families.slurm.accounting.accounting_rows import delimiter_of
from dagsim.families.slurm.site.controller_log import is_controller_log
from dagsim.families.slurm.site.slurm_nodes import is_scontrol, is_scontrol_json, is_sinfo
from dagsim.traces.source import Source

CONFIGURATION_FILES = ("slurm.conf", "gres.conf", "topology.conf")
_BACKUP = re.compile(r"[~#.,_ -](?!conf$|txt$|json$|gz$).*|\d+")


def copied_from(file: Path, kind: str, kinds: Sequence[tuple[Path, str]]) -> str:
    """Return the name of the file that Slurm reads instead of this one, if this one is only a copy.
    Otherwise, return an empty text. Slurm reads ``slurm.conf`` and similar files by name, and the
    name of a copy usually has an additional suffix (``slurm.conf.bak``)."""
    names = {other.name: other_kind for other, other_kind in kinds}
    if kind in CONFIGURATION_FILES and file.name != kind and kind in names:
        return kind
    if kind in CONFIGURATION_FILES and "slurm.conf" in names and _is_copy(file.name, kind):
        return kind
    alike = [name for name, other_kind in names.items() if kind == other_kind]
    return next((name for name in alike if _is_copy(file.name, name)), "")


def _is_copy(name: str, of: str) -> bool:
    """Return True if a file's name is that of another file plus a suffix."""
    return name.startswith(of) and _BACKUP.fullmatch(name[len(of) :]) is not None


WRITTEN_AT = "Configuration data as of"
"""The text that precedes the date in the output of `scontrol show config`."""


class _Head(NamedTuple):
    """The first lines of a file."""

    source: Source
    lines: list[str]

    @property
    def first(self) -> str:
        return self.lines[0]

    @property
    def columns(self) -> set[str]:
        """The names in the first line, if it is the header of a table."""
        return {name.strip().lower() for name in self.first.split("|")}

    def has(self, pattern: str, flags: int = 0) -> bool:
        """Return True if the lines contain the pattern."""
        return re.search(pattern, "\n".join(self.lines), re.MULTILINE | flags) is not None


SITE_FILE_KINDS: tuple[tuple[str, Callable[[_Head], object]], ...] = (
    ("scontrol show nodes", lambda head: is_scontrol_json(head.source)),
    ("scontrol show config", lambda head: head.first.startswith(WRITTEN_AT)),
    ("scontrol show reservation", lambda head: head.first.lstrip().startswith("ReservationName=")),
    ("scontrol show license", lambda head: head.first.lstrip().startswith("LicenseName=")),
    (
        "scontrol show partition",
        lambda head: head.first.startswith("PartitionName=") and head.has(r"^\s+AllowGroups=|\bTotalNodes="),
    ),
    ("sacctmgr dump", lambda head: head.has(r"^(Cluster|Parent|Account|User) - '")),
    ("sshare", lambda head: {"account", "user", "rawshares"} <= head.columns),
    (
        "sacctmgr show assoc",
        lambda head: (
            {"account", "user"} <= head.columns
            and head.columns & {"share", "fairshare"}
            and "jobid" not in head.columns
        ),
    ),
    (
        "sacctmgr show qos",
        lambda head: (
            {"name", "priority"} <= head.columns and head.columns & {"maxtrespu", "usagefactor", "preempt", "grptres"}
        ),
    ),
    ("sacctmgr show event", lambda head: {"nodename", "timestart", "timeend"} <= head.columns),
    ("slurmctld.log", lambda head: is_controller_log(head.lines)),
    ("sdiag", lambda head: any(line.startswith("sdiag output at") for line in head.lines[:2])),
    ("", lambda head: delimiter_of(head.source) is not None),
    ("topology.conf", lambda head: head.has(r"^\s*(Switch|Block)Name\s*=", re.IGNORECASE)),
    ("sinfo", lambda head: is_sinfo(head.source)),
    ("scontrol show nodes", lambda head: is_scontrol(head.source) and head.has(r"\bCPUTot=|\bCPUAlloc=")),
    (
        "gres.conf",
        lambda head: head.has(r"^\s*(?:NodeName=\S+\s+)?Name\s*=\s*\w+") and not head.has("PartitionName"),
    ),
    ("", lambda head: head.has("CPUAlloc=")),  # a node description without State= was cut off
    (
        "slurm.conf",
        lambda head: head.has(r"^\s*(SlurmctldHost|ControlMachine|ClusterName|PartitionName|NodeName)\s*="),
    ),
)
"""The kinds of files with their marks, in the order in which these are tried. Files without a kind
are not part of Slurm's configuration."""


def site_file_kind(file: Path) -> str:
    """Determine the kind of a file from its first lines (``SITE_FILE_KINDS``)."""
    source = Source(file)
    try:
        head = _Head(source, [line for line in source.head(60) if line.strip()])
    except TraceError:
        return ""
    return next((kind for kind, holds in SITE_FILE_KINDS if holds(head)), "") if head.lines else ""


def is_job_log(file: Path) -> bool:
    """Return True if the first line names columns of jobs, or if the file is empty or was cut off."""
    try:
        first = Source(file).head(1)[0].lower()
    except (TraceError, IndexError):
        return True
    return "jobid" in first
