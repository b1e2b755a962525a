"""Copy logs and node lists without the names of people and machines, so that they can be shared.

Only fields known to be harmless are copied. A log becomes dagsim's own JSON Lines, or keeps its
format if a family supports this (``anonymised``), and a list of nodes becomes rows of ``sinfo``.
The files of a site are replaced by a configuration with renamed entries (``renamed_site``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dagsim.errors import InputError, TraceError
from dagsim.families.site.node_lists import FoundNode, ImportedCluster, ImportedSite, grouped, node_format, read_nodes
from dagsim.family import family_entries
from dagsim.files import replaced
from dagsim.model import GPU_TYPES, Job, QueueNode, QueueTree
from dagsim.own_code import attribute
from dagsim.traces import open_trace, recognise
from dagsim.traces.sites import folded, hosts, site_gpu
from dagsim.traces.source import Source
from dagsim.traces.times import is_unset
from dagsim.workload.records import write_jobs

_Value = TypeVar("_Value")
_MOST_NODES = 1 << 14
_FEATURE = re.compile(r"(\*\d+)|[^\s&,|!()\[\]*]+")


class Names:
    """Consistent pseudonyms, numbered in order of appearance. Equal names get equal pseudonyms."""

    def __init__(self) -> None:
        self._new: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}

    def new(self, kind: str, old: str) -> str:
        """Return the pseudonym of ``old`` among names of its kind. The result is empty if ``old``
        is empty."""
        if not old:
            return old
        if (kind, old) not in self._new:
            self._count[kind] = self._count.get(kind, 0) + 1
            self._new[kind, old] = f"{kind}-{self._count[kind]}"
        return self._new[kind, old]

    def node(self, old: str) -> str:
        """Return the pseudonym of a node. A part of a node with several GPU types is called
        ``name:type``, and keeps the type."""
        name, colon, kind = old.partition(":")
        return self.new("node", name) + colon + kind

    def constraint(self, text: str) -> str:
        """Replace every feature in a constraint except the names of GPU types."""
        return _FEATURE.sub(lambda match: match[0] if match[1] else self.feature(match[0]), text)

    def feature(self, old: str) -> str:
        """Return the pseudonym of a feature. The name of a GPU type is kept."""
        return old if site_gpu(old) in GPU_TYPES else self.new("feature", old)

    def nodes(self, text: str) -> str:
        """Replace every name in a list of nodes. A list that cannot be read becomes ``None
        assigned``. An empty text, which means that the log has no such column, stays empty."""
        if not text:
            return ""
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
    own = {entry.name: attribute(f"{home}{entry.target}") for home, entry in family_entries("anonymised")}
    for number, path in enumerate(paths, 1):
        if Path(path).is_dir() and not _has_log(Path(path)):
            continue
        source = Source(path)
        source.head()
        if not Path(path).is_dir() and node_format(source):
            written.append(folder / f"nodes-{number}.txt")
            _write(written[-1], _node_rows(read_nodes(source), pseudonyms))
        elif (format := recognise(path)) in own:
            written.append(folder / f"{format}-{number}.txt")
            _write(written[-1], own[format](source, pseudonyms))
        else:
            written.append(folder / f"jobs-{number}.jsonl.gz")
            written[-1].parent.mkdir(parents=True, exist_ok=True)
            write_jobs(written[-1], (_renamed(job, pseudonyms) for job in open_trace(path).jobs()))
    if not written:
        raise TraceError("there is no file to anonymise; name at least one log, list of nodes, or folder with a log")
    return written


def _has_log(folder: Path) -> bool:
    try:
        return bool(recognise(folder))
    except TraceError:
        return False


def _write(path: Path, lines: Iterable[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as partial, partial.open("w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


class RenamedSite(NamedTuple):
    """A site with pseudonyms."""

    imported: ImportedCluster
    queues: QueueTree
    network: dict[str, Any] | None
    policy: str


def renamed_site(site: ImportedSite, names: Names) -> RenamedSite:
    """Return the nodes, queues and network of a site with pseudonyms. GPU types are kept.

    Raises:
        TraceError: The site cannot be read.
    """
    nodes = [
        replace(
            node,
            name=names.new("node", node.name),
            partitions=tuple([names.new("partition", name) for name in node.partitions]),
            features=tuple([names.feature(text) for text in node.features]),
            manifest="",  # left out, because labels, taints and images contain names
        )
        for node in site.found_nodes()
    ]
    plain = grouped(site.found_nodes(), keep_all=True, in_order=True)
    network = site.network(plain.node_names())
    for switch in () if network is None else network["topology"]["switches"]:
        switch["name"] = names.new("switch", switch["name"])
        for key, rename in (("nodes", names.node), ("switches", lambda old: names.new("switch", old))):
            if key in switch:
                switch[key] = [rename(old) for old in switch[key]]
    imported = grouped(nodes, keep_all=True, in_order=True)
    imported.notes = []  # removed, because the notes contain names of nodes
    return RenamedSite(imported, _renamed_queues(site.queues(), names), network, site.policy)


def _renamed_queues(queues: QueueTree, names: Names) -> QueueTree:
    """Return the queues with pseudonyms for all accounts, users, partitions, QOS, nodes and
    licences."""

    def users(values: Mapping[str, _Value]) -> dict[str, _Value]:
        return {names.new("user", user): value for user, value in values.items()}

    def listed(kind: str, old: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([names.new(kind, name) for name in old])

    def nodes(old: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([names.node(name) for name in old])

    def alias(text: str) -> str:
        namespace, slash, queue = text.rpartition("/")
        return names.new("account", namespace) + slash + names.new("partition", queue)

    def queue(node: QueueNode) -> QueueNode:
        return replace(
            node,
            name=names.new("account", node.name),
            users=users(node.users),
            user_priorities=users(node.user_priorities),
            limits_of=users(node.limits_of),
            job_limits_of=users(node.job_limits_of),
            aliases=tuple(map(alias, node.aliases)),
            children=tuple(map(queue, node.children)),
        )

    return replace(
        queues,
        tree=tuple(map(queue, queues.tree)),
        kueue=None if queues.kueue is None else queues.kueue.renamed(names.new),
        partitions=tuple(
            [
                replace(
                    part,
                    name=names.new("partition", part.name),
                    nodes=nodes(part.nodes),
                    qos=names.new("qos", part.qos),
                    accounts=listed("account", part.accounts),
                    denied_accounts=listed("account", part.denied_accounts),
                    allowed_qos=listed("qos", part.allowed_qos),
                    denied_qos=listed("qos", part.denied_qos),
                )
                for part in queues.partitions
            ]
        ),
        qos=tuple(
            [
                replace(
                    qos,
                    name=names.new("qos", qos.name),
                    preempts=listed("qos", qos.preempts),
                )
                for qos in queues.qos
            ]
        ),
        reservations=tuple(
            [
                replace(
                    one,
                    name=names.new("reservation", one.name),
                    nodes=nodes(one.nodes),
                    accounts=listed("account", one.accounts),
                    users=listed("user", one.users),
                )
                for one in queues.reservations
            ]
        ),
        outages=tuple([replace(one, nodes=nodes(one.nodes)) for one in queues.outages]),
        suspensions=(),
        licences={names.new("licence", name): count for name, count in queues.licences.items()},
    )


def _node_rows(nodes: Iterable[FoundNode], names: Names) -> Iterator[str]:
    """Yield the nodes in the form of ``sinfo -N -e -h -o "%N|%P|%t|%c|%m|%G|%f"``, one row per
    partition."""
    for node in nodes:
        gres = ",".join(f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in node.gpus) or "(null)"
        features = ",".join(map(names.feature, node.features)) or "(null)"
        state = "idle" if node.usable else "down"
        facts = (state, f"{node.cpus:.0f}", f"{node.memory_gb * 1024:.0f}", gres, features)
        for partition in node.partitions or ("all",):
            yield "|".join((names.new("node", node.name), names.new("partition", partition), *facts)) + "\n"


def _renamed(job: Job, names: Names) -> Job:
    """Replace every name in a job. Its tasks become ``task-0``, ``task-1`` and so on."""
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
        observed_attempts=tuple(
            [
                run._replace(nodes=tuple([names.new("node", name) for name in run.nodes]))
                for run in job.observed_attempts
            ]
        ),
        graph=replace(
            job.graph, tasks=tuple([replace(t, name=f"task-{n}", manifest="") for n, t in enumerate(job.tasks)])
        ),
    )
