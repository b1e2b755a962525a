"""The demand of a pod: quantities, summed over its containers as the scheduler does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from dagsim.traces.documents import list_in, object_in, text_in
from dagsim.traces.fields import MOST_GPUS, Dirty

__all__ = ["PodDemand", "pod_demand", "quantity", "wanted_type", "whole"]

_QUANTITY = re.compile(
    r"([+-]?\d{1,30}(?:\.\d{0,30})?)(?:[eE]([+-]?\d{1,2})|(n|u|m|k|K|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?", re.I
)
_UNITS = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
_WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/i915")
_SHARED = "nvidia.com/gpu.shared"
_MILLI = "alibabacloud.com/gpu-milli"
_SLICE = re.compile(r"nvidia\.com/mig-(\d)g\.(\d{1,4})gb")
_TYPE_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator")


class PodDemand(NamedTuple):
    """The resources that one pod occupies."""

    gpus: int = 0
    share: float = 0.0
    """Of one GPU, by MIG slices or thousandths."""
    shared: int = 0
    """Time slices of which a node's configuration knows the number."""
    cpus: float = 0.0
    memory_gb: float = 0.0

    @property
    def on_gpu(self) -> bool:
        return bool(self.gpus or self.share or self.shared)


def quantity(text: Any) -> float:
    """``7500m``, ``64Gi``, ``64G``, ``1e9`` or a plain number.

    Raises:
        Dirty: It is none, or negative.
    """
    said = str(text).strip() if isinstance(text, int | float | str) and not isinstance(text, bool) else ""
    found = _QUANTITY.fullmatch(said[:80])
    if found is None or (found[3] is not None and found[3] not in _UNITS):
        raise Dirty("whose resources are no quantities")
    value = float(found[1]) * (10.0 ** int(found[2]) if found[2] else _UNITS[found[3] or ""])
    if not 0 <= value < inf:
        raise Dirty("whose resources are impossible")
    return value


def pod_demand(spec: Any) -> PodDemand:
    """The demand of a pod: all its containers together, or any one init container if that asks for more.

    Init containers that restart always are side cars: they run along, and are summed.

    Raises:
        Dirty: A quantity is none.
    """
    together: dict[str, float] = {}
    for container in list_in(spec, "containers"):
        _add(together, _asked(container))
    first: dict[str, float] = {}
    for container in list_in(spec, "initContainers"):
        asked = _asked(container)
        if text_in(container, "restartPolicy") == "Always":
            _add(together, asked)
        else:
            first = {name: max(first.get(name, 0.0), asked.get(name, 0.0)) for name in first.keys() | asked.keys()}
    taken = {name: max(first.get(name, 0.0), together.get(name, 0.0)) for name in first.keys() | together.keys()}
    return PodDemand(
        sum(whole(taken.get(name, 0.0)) for name in _WHOLE_GPUS),
        taken.get(_MILLI, 0.0) / 1000
        + sum(share * whole(taken[name]) for name in sorted(taken) if (share := _slice(name))),
        whole(taken.get(_SHARED, 0.0)),
        round(taken.get("cpu", 0.0), 9),
        taken.get("memory", 0.0) / 2**30,
    )


def wanted_type(spec: Any) -> tuple[str, ...]:
    """GPU products that a pod insists on, by its node selector or required affinity; nothing where any will do."""
    for label in _TYPE_LABELS:
        if said := text_in(spec, "nodeSelector", label):
            return (said,)
    terms = list_in(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
    )
    found = [
        value
        for term in terms
        for each in list_in(term, "matchExpressions")
        if text_in(each, "key") in _TYPE_LABELS and text_in(each, "operator") == "In"
        for value in list_in(each, "values")
        if isinstance(value, str)
    ]
    return tuple(dict.fromkeys(found))


def _asked(container: Any) -> dict[str, float]:
    """Requests, and limits for what is only limited: extended resources need no request."""
    said: dict[str, Any] = {
        **object_in(container, "resources", "limits"),
        **object_in(container, "resources", "requests"),
    }
    return {name: quantity(value) for name, value in said.items()}


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value


def whole(value: float) -> int:
    """The value as a number of GPUs.

    Raises:
        Dirty: It is none.
    """
    if value != int(value) or value > MOST_GPUS:
        raise Dirty("whose resources are impossible")
    return int(value)


def _slice(name: str) -> float:
    """The share of a GPU that a MIG resource stands for; 0 for any other resource. An A30 has 4 slices, others 7."""
    found = _SLICE.match(name)
    return 0.0 if found is None else int(found[1]) / (4 if int(found[2]) == 6 * int(found[1]) else 7)
