"""Copies of logs and node lists without the names of people and machines, for sharing.

Only fields known to be harmless are copied. A log of ``sacct`` keeps the columns that its reader
uses, a log of another format becomes dagsim's own JSON Lines, and a list of nodes becomes rows of
``sinfo``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dagsim.errors import InputError, TraceError
from dagsim.files import replaced
from dagsim.model import GPU_TYPES, Job
from dagsim.traces import open_trace, recognise
from dagsim.traces.nodes import FORMATS, FoundNode, read_nodes
from dagsim.traces.report import ReadReport
from dagsim.traces.sites import folded, hosts, site_gpu
from dagsim.traces.slurm import COLUMNS, is_unset, sacct_rows
from dagsim.traces.source import Source
from dagsim.workload.jsonl import write_jobs

__all__ = ["Names", "anonymise"]

_KINDS = {"User": "user", "Account": "account", "QOS": "qos"}
_RESOURCES = ("billing=", "cpu=", "gres/", "mem=", "node=")
_MOST_NODES = 1 << 14


class Names:
    """Consistent pseudonyms: equal names get equal pseudonyms, numbered in order of appearance."""

    def __init__(self) -> None:
        self._new: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}

    def new(self, kind: str, old: str) -> str:
        """Pseudonym of ``old`` among names of its kind; empty if ``old`` is empty."""
        if not old:
            return old
        if (kind, old) not in self._new:
            self._count[kind] = self._count.get(kind, 0) + 1
            self._new[kind, old] = f"{kind}-{self._count[kind]}"
        return self._new[kind, old]

    def nodes(self, text: str) -> str:
        """Replace every name in a list of nodes; a list that cannot be read becomes ``None
        assigned``.
        """
        if is_unset(text) or text.lower() == "none assigned":
            return "None assigned"
        try:
            return folded([self.new("node", name) for name in hosts(text, _MOST_NODES)])
        except ValueError:
            return "None assigned"

    def __len__(self) -> int:
        return len(self._new)


def anonymise(paths: Iterable[Path | str], folder: Path, names: Names | None = None) -> list[Path]:
    """Write an anonymised copy of each log and node list into ``folder``, with the same pseudonyms
    in all of them.

    Raises:
        TraceError: A file is neither a log nor a list of nodes, or cannot be read.
    """
    pseudonyms = Names() if names is None else names
    written = []
    for number, path in enumerate(paths, 1):
        source = Source(path)
        source.head()
        if any(recognised(source) for recognised, _ in FORMATS.values()):
            written.append(folder / f"nodes-{number}.txt")
            _write(written[-1], _node_rows(read_nodes(source), pseudonyms))
        elif recognise(path) == "sacct":
            written.append(folder / f"sacct-{number}.txt")
            _write(written[-1], _sacct_lines(source, pseudonyms))
        else:
            written.append(folder / f"jobs-{number}.jsonl.gz")
            written[-1].parent.mkdir(parents=True, exist_ok=True)
            write_jobs(written[-1], (_renamed(job, pseudonyms) for job in open_trace(path).jobs()))
    if not written:
        raise TraceError("no file to anonymise; name at least one log or list of nodes")
    return written


def _write(path: Path, lines: Iterable[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as partial, partial.open("w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


def _sacct_lines(source: Source, names: Names) -> Iterator[str]:
    """Rows of ``sacct`` with the columns that its reader uses, without steps and torn rows."""
    yield "|".join(COLUMNS) + "\n"
    for _, row in sacct_rows(source, ReadReport(), None):
        fields = dict(zip(COLUMNS, row, strict=True))
        if "." in (fields["JobID"] or fields["JobIDRaw"]).partition("[")[0]:
            continue
        for column, kind in _KINDS.items():
            fields[column] = names.new(kind, fields[column])
        fields["Partition"] = ",".join(
            names.new("partition", partition) for partition in fields["Partition"].split(",")
        )
        fields["NodeList"] = names.nodes(fields["NodeList"])
        for column in ("ReqTRES", "AllocTRES"):  # names of licences may identify the site
            fields[column] = ",".join(part for part in fields[column].split(",") if part.startswith(_RESOURCES))
        for column in ("Constraints", "Reservation", "SubmitLine"):  # free text may name people and paths
            fields[column] = ""
        fields["State"] = (fields["State"].split() or [""])[0]  # CANCELLED by 1007 names a user
        yield "|".join(text.replace("|", " ").replace("\n", " ") for text in fields.values()) + "\n"


def _node_rows(nodes: Iterable[FoundNode], names: Names) -> Iterator[str]:
    """Nodes in the form of ``sinfo -N -e -h -o "%N|%P|%t|%c|%m|%G|%f"``, one row per partition."""
    for node in nodes:
        gres = ",".join(f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in node.gpus) or "(null)"
        features = ",".join(text for text in node.features if site_gpu(text) in GPU_TYPES) or "(null)"
        state = "idle" if node.usable else "down"
        facts = (state, f"{node.cpus:.0f}", f"{node.memory_gb * 1024:.0f}", gres, features)
        for partition in node.partitions or ("all",):
            yield "|".join((names.new("node", node.name), names.new("partition", partition), *facts)) + "\n"


def _renamed(job: Job, names: Names) -> Job:
    """Replace every name of the job; its tasks become ``task-0``, ``task-1`` and so on."""
    return replace(
        job,
        id=names.new("job", job.id),
        tenant=names.new("account", job.tenant),
        user=names.new("user", job.user),
        account=names.new("account", job.account),
        partition=names.new("partition", job.partition),
        qos=names.new("qos", job.qos),
        request=None,
        observed_nodes=tuple([names.new("node", name) for name in job.observed_nodes]),
        graph=replace(job.graph, tasks=tuple([replace(t, name=f"task-{n}") for n, t in enumerate(job.tasks)])),
    )
