"""Nodes of real clusters, as their schedulers print them: Slurm, Kubernetes, PBS."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dagsim.errors import TraceError
from dagsim.traces.nodes.found import FoundNode
from dagsim.traces.nodes.kube import is_kube, kube_nodes
from dagsim.traces.nodes.pbs import is_pbs, pbs_nodes
from dagsim.traces.nodes.slurm import is_scontrol, is_scontrol_json, is_sinfo, scontrol_json, scontrol_text, sinfo_nodes
from dagsim.traces.source import Source

__all__ = ["FORMATS", "FoundNode", "read_nodes"]

FORMATS: dict[str, tuple[Callable[[Source], bool], Callable[[Source], Iterator[FoundNode]]]] = {
    "scontrol show nodes": (is_scontrol, scontrol_text),
    "scontrol show nodes --json": (is_scontrol_json, scontrol_json),
    "kubectl get nodes -o json": (is_kube, kube_nodes),
    "pbsnodes": (is_pbs, pbs_nodes),
    "sinfo -N -e -h -o '%N|%P|%t|%c|%m|%G|%f'": (is_sinfo, sinfo_nodes),
}
"""By the command that prints it: how it is recognised, and how it is read."""


def read_nodes(source: Source) -> list[FoundNode]:
    """The nodes of the source, each once, in its order.

    Raises:
        TraceError: It cannot be read, is none of the formats, or lists no node.
    """
    source.head()
    for recognised, read in FORMATS.values():
        if recognised(source):
            found: dict[str, FoundNode] = {}
            for node in read(source):
                known = found.get(node.name)
                found[node.name] = node if known is None else known.also_in(node.partitions)
            if not found:
                raise TraceError(f"{source}:1: no node in it")
            return list(found.values())
    raise TraceError(f"{source}: no list of nodes; what is read: {'; '.join(FORMATS)}")
