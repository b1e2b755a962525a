"""Write the configuration of an imported cluster or site to a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import yaml

from dagsim.config.schema import Config, config_in
from dagsim.config.yaml import load
from dagsim.errors import ConfigError, DagsimError, InputError
from dagsim.families.site.node_lists import ImportedCluster, ImportedSite, grouped, node_format, node_notes, read_nodes
from dagsim.families.site.site_import import log_in, read_site, site_files, site_parts, sites_in, with_jobs
from dagsim.files import write_text
from dagsim.model import GPU_TYPES, GpuType, NodeOutage, NodePartition, NodeReservation, OnDemand, QueueTree
from dagsim.spelling import choices
from dagsim.systems.cluster.audit.audit import Audit
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import cluster_scenario_of
from dagsim.text import count_of
from dagsim.traces import Trace, TraceOptions
from dagsim.traces.sites import folded, named_gpus
from dagsim.traces.source import Source
from dagsim.workload.accept import accepting

_SHOWN, _NAMED = 20, 8


def import_site(
    paths: Sequence[Path],
    out: Path,
    *,
    gpus: str | None = None,
    timezone: str | None = None,
    keep_all: bool = False,
    strict: bool = False,
    overwrite: bool = True,
) -> list[str]:
    """Write the configuration of the site, or of the list of nodes, that the files describe. Return
    messages about what was read, noted, not modelled, left out or unknown. ``gpus`` identifies the
    site's GPU types (``a100=A100-80``), and ``timezone`` is the time zone of dates. If ``keep_all``
    is True, nodes that are down are kept. If ``strict`` is True, no file is left if the site's log
    contradicts it. Unless ``overwrite`` is True, a different file called ``out`` is kept, because
    it may have been edited.

    Raises:
        InputError: There are several files but none describes queues, or an existing file that
            differs is kept.
        ContradictoryInput: The log and the site contradict each other, and ``strict`` is set.
        TraceError, ConfigError: A file cannot be read, or an argument is wrong.
    """
    named, zone, files = named_gpus(gpus, "--gpu"), TraceOptions(timezone=timezone).zone(), site_files(paths)
    for kind in named.values():
        if kind not in GPU_TYPES:
            raise ConfigError(f"--gpu: unknown GPU type {kind!r}{choices(kind, GPU_TYPES)} (dagsim list gpus)")
    origin = ", ".join(path.name for path in paths)
    described = _site_of(paths, files, zone, named, origin, out.stem)
    if described is None:
        described = _cluster_of(files, named, origin, out.stem, keep_all)
    if described is None:
        sites = sites_in(files, zone).values()
        read = [f"{name}: {content}" for site in sites for name, content in site.read]
        read += [f"{name}: nothing ({why})" for site in sites for name, why in site.unread]
        raise InputError(
            f"{origin}: the files do not describe a site ({'; '.join(read) or 'nothing recognised'}); needed: "
            f"{', or '.join(site_parts())}, or a list of nodes alone, such as dagsim site import nodes.txt -o {out}"
        )
    config = config_in(load(described.text, str(out)))
    audit, faults = (Audit(), []) if described.log is None else _audit_of(config, described.log)
    if strict:
        audit.refuse(origin)
    if not overwrite and out.is_file() and out.read_bytes() != described.text.encode():
        raise InputError(
            f"{out}: exists and differs from this import, for example because it was edited; write to another file, "
            "or replace it with --overwrite"
        )
    write_text(out, described.text)
    lines = [*audit.sentences(), *faults, f"{out}: {config.build_cluster()}", *described.remarks(out)]
    return [*lines, *audit.sentences(urgent=False)]


class _Made(NamedTuple):
    """A configuration that was created from files."""

    text: str
    cluster: ImportedCluster
    unmodelled: list[str]
    """Settings that the configuration cannot contain."""
    site: ImportedSite | None = None
    """The site, if the files describe one and not only nodes."""
    log: Trace | None = None
    """The site's own log."""

    def remarks(self, out: Path) -> list[str]:
        """Return messages about what was read, noted, not modelled, left out or unknown."""
        lines = []
        if self.site is not None:
            lines += [f"read {name}: {content}" for name, content in self.site.read]
            lines += [f"read {name}: nothing ({why})" for name, why in self.site.unread]
        lines += [f"noted: {note}" for note in self.cluster.notes]
        lines += [f"not modelled: {what}" for what in self.unmodelled]
        if left_out := self.cluster.left_out:
            more = f"; and {len(left_out) - _NAMED:,} more" if len(left_out) > _NAMED else ""
            lines.append(
                f"left out {count_of(len(left_out), 'node')} (--all keeps them): {'; '.join(left_out[:_NAMED])}{more}"
            )
        return lines + [
            f"GPU type {kind!r} is unknown; say what it is with --gpu {kind}=TYPE, or fill in {out}"
            for kind in self.cluster.unknown
        ]


def _site_of(
    paths: Sequence[Path],
    files: Sequence[Path],
    zone: ZoneInfo | None,
    named: Mapping[str, str],
    origin: str,
    name: str,
) -> _Made | None:
    """Make the configuration of a site, called ``name`` unless it has a name. Return None if the
    files do not describe one.
    """
    site = read_site(files, zone)
    if site is None:
        return None
    facts, log = site.facts(named), log_in(paths)
    unmodelled, name = with_jobs(facts.unmodelled, log, site.written_s), site.cluster_name or name
    text = cluster_yaml(facts.nodes, name, origin, facts.queues, unmodelled, facts.network, site.policy, facts.restarts)
    return _Made(text, facts.nodes, unmodelled, site, log)


def _cluster_of(
    files: Sequence[Path], named: Mapping[str, str], origin: str, name: str, keep_all: bool
) -> _Made | None:
    """Create the configuration of a cluster without queues, or return None if no file lists nodes."""
    listed = _node_lists(files)
    if not listed:
        return None
    nodes = [node for file in listed for node in read_nodes(Source(file))]
    unmodelled = [note for file in listed for note in node_notes(Source(file))]
    imported = grouped(nodes, named, keep_all=keep_all)
    form = node_format(Source(listed[0]))
    text = cluster_yaml(imported, name, origin, policy=form.policy if form and nodes[0].manifest else "")
    return _Made(text, imported, unmodelled)


def _node_lists(files: Sequence[Path]) -> list[Path]:
    """Return the files that describe a cluster without queues. These are a single file, or all node
    lists whose format implies a scheduler.
    """
    if len(files) == 1:
        return list(files)
    return [file for file in files if (form := node_format(Source(file))) is not None and form.policy]


def _audit_of(config: Config, log: Trace) -> tuple[Audit, list[str]]:
    """Return the contradictions between a site's log and its configuration, and any fault that kept
    the log from being checked in full.
    """
    # use recorded run times, because jobs from a log have no model name
    scenario = replace(cluster_scenario_of(config), runtime=Recorded())
    log.change = lambda jobs: accepting(jobs, scenario.accept, scenario.runtime, scenario.cluster.gpu_types)
    log.watcher = auditor = scenario.auditor(log)
    faults = []
    try:
        log.arrays()
    except DagsimError as error:  # some logs can only be read with an option
        faults.append(f"warning: the log was not compared with the site: {error}")
    return auditor.audit(log.report), faults


def cluster_yaml(
    imported: ImportedCluster,
    name: str,
    origin: str,
    queues: QueueTree | None = None,
    unmodelled: Iterable[str] = (),
    network: Mapping[str, Any] | None = None,
    policy: str = "",
    restarts: bool = False,
) -> str:
    """Write ``cluster``, ``gpu_types``, ``queues``, ``policy``, ``network``, and ``preemption`` if
    preempted jobs restart. Nodes that were left out, notes, and settings that are not modelled
    become comments.

    Text from the site's files is quoted, so that it cannot end a comment or a value.
    """
    lines = [f"Made by dagsim site import from {origin}."]
    lines += _listed("left out, because jobs cannot run there", imported.left_out)
    lines += _listed("noted", imported.notes)
    lines += _listed("not modelled", list(unmodelled))
    if imported.unknown:
        lines.append(f"NOT KNOWN: {', '.join(imported.unknown)}: fill in the values in gpu_types, which are all 1")
    document: dict[str, Any] = {}
    if imported.gpu_types:
        document["gpu_types"] = [_figures(gpu) for gpu in imported.gpu_types.values()]
    document["cluster"] = {"name": name, "groups": [_group(asdict(group)) for group in imported.groups]}
    if imported.accept:
        document["cluster"]["accept"] = imported.accept
    if queues is not None:
        document["queues"] = _lean(queues)
    if policy in POLICIES:
        document["policy"] = policy
    elif policy:
        lines.append(f"not written: policy: {policy}, whose family this installation lacks")
    if restarts:
        document["preemption"] = {"on_resume": "restart"}
    if network is not None:
        document["network"] = network
    comments = "".join(f"# {json.dumps(line, ensure_ascii=True)[1:-1]}\n" for line in lines)
    return comments + yaml.safe_dump(document, sort_keys=False, width=120)


def _listed(what: str, items: list[str]) -> list[str]:
    more = f" and {len(items) - _SHOWN:,} more" if len(items) > _SHOWN else ""
    return [f"{what}: {'; '.join(items[:_SHOWN])}{more}"] if items else []


def _figures(gpu: GpuType) -> dict[str, Any]:
    figures = {figure.name: getattr(gpu, figure.name) for figure in fields(gpu) if figure.name != "sources"}
    return {key: value for key, value in figures.items() if value is not None}


def _group(group: dict[str, Any]) -> dict[str, Any]:
    plain = {"features": [], "weight": 1.0, "manifest": {}}
    group["manifest"] = json.loads(group["manifest"] or "{}")
    if group["on_demand"] is not None:
        group["on_demand"] = _lean(OnDemand(**group["on_demand"])) or {"boot_s": OnDemand().boot_s}
    lean = {
        key: list(value) if isinstance(value, tuple) else value for key, value in group.items() if value is not None
    }
    return {key: value for key, value in lean.items() if key not in plain or value != plain[key]}


def _lean(value: Any) -> Any:
    """Convert a value of the configuration to plain data, without fields that have their defaults."""
    if isinstance(value, NodePartition | NodeReservation | NodeOutage) and value.nodes:
        lean = {name: _lean(content) for name, content in _changed(value)}
        return lean | {"nodes": [folded(value.nodes)]}
    if is_dataclass(value):
        return {name: _lean(content) for name, content in _changed(value)}
    if isinstance(value, Mapping):
        return {key: _lean(content) for key, content in value.items()}
    return [_lean(content) for content in value] if isinstance(value, tuple) else value


def _changed(value: Any) -> Iterable[tuple[str, Any]]:
    for one in fields(value):
        content = getattr(value, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if content != default:
            yield one.name, content
