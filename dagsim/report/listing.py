"""What there is to choose from, as tables: heads and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dagsim.config.bundled import shipped, summary_of
from dagsim.model import GPU_TYPES
from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES
from dagsim.traces import READERS, reader
from dagsim.traces.catalogue import CATALOGUE
from dagsim.workload import PRESETS

__all__ = ["Listing", "listing"]

_GPU = (
    "fp32_tflops",
    "tf32_tflops",
    "fp16_tflops",
    "memory_gb",
    "bandwidth_gb_s",
    "nvlink_gb_s",
    "tdp_watts",
    "idle_watts",
)


class Listing(NamedTuple):
    """A table."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]


def listing(kind: str) -> Listing:
    """The table of ``policies``, ``placements``, ``gpus``, ``workloads``, ``configs``, ``readers`` or ``traces``."""
    match kind:
        case "policies":
            policies = POLICIES.describe()
            return Listing(
                ("policy", "what it does", "tags"),
                [(entry.name, entry.summary, ", ".join(entry.tags)) for entry in policies],
            )
        case "placements":
            placements = PLACEMENT_RULES.describe()
            return Listing(("placement", "where tasks go"), [(entry.name, entry.summary) for entry in placements])
        case "gpus":
            gpus = GPU_TYPES.values()
            return Listing(("gpu", *_GPU), [(gpu.name, *(getattr(gpu, name) for name in _GPU)) for gpu in gpus])
        case "workloads":
            presets = [(name, preset.summary) for name, preset in PRESETS.items()]
            files = [(name, str(path)) for name, path in shipped("workloads").items()]
            return Listing(("workload", "what it is"), presets + files)
        case "configs":
            configs = shipped("configs").items()
            return Listing(
                ("config", "what it is", "file"), [(name, summary_of(path), str(path)) for name, path in configs]
            )
        case "readers":
            return Listing(("format", "what it reads"), [(name, reader(name).summary) for name in READERS])
        case "traces":
            return Listing(
                ("trace", "what it is", "format", "files", "bytes", "terms"),
                [
                    (name, trace.title, trace.format, len(trace.files) or "by hand", trace.bytes, trace.terms)
                    for name, trace in CATALOGUE.items()
                ],
            )
    raise AssertionError(kind)
