"""Write an imported cluster as the YAML of a configuration."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

import yaml

from dagsim.model import GpuType
from dagsim.traces.nodes import ImportedCluster

__all__ = ["cluster_yaml"]

_SHOWN = 20


def cluster_yaml(imported: ImportedCluster, name: str, origin: str) -> str:
    """Write ``cluster`` and ``gpu_types``; nodes that were left out, and notes, become comments.

    Text from the log is quoted, so that it cannot end a comment or a value.
    """
    lines = [f"Made by dagsim cluster import from {origin}."]
    lines += _listed("left out, as jobs cannot run there", imported.left_out)
    lines += _listed("noted", imported.notes)
    if imported.unknown:
        lines.append(f"NOT KNOWN: {', '.join(imported.unknown)}: fill in the figures of gpu_types, they are all 1")
    document: dict[str, Any] = {}
    if imported.gpu_types:
        document["gpu_types"] = [_figures(gpu) for gpu in imported.gpu_types.values()]
    document["cluster"] = {"name": name, "groups": [_group(asdict(group)) for group in imported.groups]}
    comments = "".join(f"# {json.dumps(line, ensure_ascii=True)[1:-1]}\n" for line in lines)
    return comments + yaml.safe_dump(document, sort_keys=False, width=120)


def _listed(what: str, items: list[str]) -> list[str]:
    more = f" and {len(items) - _SHOWN:,} more" if len(items) > _SHOWN else ""
    return [f"{what}: {'; '.join(items[:_SHOWN])}{more}"] if items else []


def _figures(gpu: GpuType) -> dict[str, Any]:
    figures = {figure.name: getattr(gpu, figure.name) for figure in fields(gpu) if figure.name != "sources"}
    return {key: value for key, value in figures.items() if value is not None}


def _group(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if value is not None}
