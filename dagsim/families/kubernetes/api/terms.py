"""Kubernetes terms: quantities, the resources requested by a pod (KEP-753), and selectors.

Like kube-scheduler, count resources in whole units: thousandths of a core for ``cpu``, bytes for
memory, ephemeral storage and huge pages, and single items of everything else. Fractions of a unit
are rounded up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple, TypeAlias

from dagsim.traces.documents import list_in, object_in, text_in
from dagsim.traces.fields import Dirty, InvalidValue

_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}))(?:[eE]([+-]?\d{1,2})|(n|u|m|k|K|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?"
)
_UNITS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "K": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30),
    "Ti": Fraction(2**40), "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/i915")
HOSTNAME = "kubernetes.io/hostname"
_MOST = 1 << 62
"""Maximum number of units, so that sums fit into 64 bits."""

DEFAULT_CPU, DEFAULT_MEMORY = 100, 200 << 20
"""The amounts that NodeResourcesFit assumes, when scoring, for each container that requests no CPU
or memory."""


def quantity(text: Any) -> float:
    """Parse a quantity: ``7500m``, ``64Gi``, ``.5Gi``, ``64G``, ``1e9`` or a plain number.

    Raises:
        Dirty: The text is not a quantity, or it is negative.
    """
    return float(_exact(text))


def _exact(text: Any) -> Fraction:
    plain = isinstance(text, int | float | str) and not isinstance(text, bool)
    return _quantity(str(text).strip()[:80] if plain else "")


@lru_cache(maxsize=1 << 14)
def _quantity(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise Dirty("with resources that are not quantities")
    value = Fraction(match[1]) * (Fraction(10) ** int(match[2]) if match[2] else _UNITS[match[3] or ""])
    if not 0 <= value < _MOST:
        raise Dirty(InvalidValue("with impossible resources"))
    return value


def units(resource: str, text: Any) -> int:
    """Convert a quantity to whole units of the resource.

    Raises:
        Dirty: The text is not a quantity, or it is negative or too large.
    """
    value = ceil(_exact(text) * (1000 if resource == "cpu" else 1))
    if value >= _MOST:
        raise Dirty(InvalidValue("with impossible resources"))
    return value


def amounts(resources: Any) -> dict[str, int]:
    """Convert a mapping of quantities to units of each resource.

    Raises:
        Dirty: A value is not a quantity.
    """
    return {name: units(name, value) for name, value in object_in(resources).items()}


def requests_of(resources: Any) -> dict[str, int]:
    """Return the requests. For a resource with a limit but without a request, the limit is used, as
    in the API server.

    Raises:
        Dirty: A value is not a quantity.
    """
    return amounts(object_in(resources, "limits")) | amounts(object_in(resources, "requests"))


def pod_requests(spec: Any, *, pod_level: bool = True, assumed: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return what a pod requests. The request is the sum over its containers and sidecars. If an
    init container, together with the sidecars that start before it, needs more, that is the request
    (KEP-753). Requests that the pod itself states replace this sum (KEP-2837). The pod's overhead
    is added.

    Without ``pod_level``, the pod's own requests are ignored. ``assumed`` contains, for resources
    that a container does not mention, the request that is assumed.

    Raises:
        Dirty: A value is not a quantity.
    """
    together: dict[str, int] = {}
    for container in list_in(spec, "containers"):
        add_amounts(together, _asked(container, assumed))
    sidecars: dict[str, int] = {}
    before: list[dict[str, int]] = []
    for container in list_in(spec, "initContainers"):
        asked = _asked(container, assumed)
        if text_in(container, "restartPolicy") == "Always":
            add_amounts(together, asked)
            add_amounts(sidecars, asked)
            before.append(dict(sidecars))
        else:
            add_amounts(asked, sidecars)
            before.append(asked)
    total = largest([together, *before])
    if pod_level:
        total |= _of_pod(spec, total)
    add_amounts(total, amounts(object_in(spec, "overhead")))
    return total


def has_own_requests(spec: Any) -> bool:
    """Return True if the pod itself states requests or limits."""
    return bool(_of_pod(spec, {}))


def _of_pod(spec: Any, containers: Mapping[str, int]) -> dict[str, int]:
    """Return the pod's own requests. If the pod has limits but lacks a request, the request is
    filled in as by the API server: with the requests of the containers or, without these, with the
    limit.
    """
    stated = object_in(spec, "resources")
    own, limits = amounts(object_in(stated, "requests")), amounts(object_in(stated, "limits"))
    if limits:
        own = limits | {name: size for name, size in containers.items() if name in ("cpu", "memory")} | own
    return {name: size for name, size in own.items() if name in ("cpu", "memory") or name.startswith("hugepages-")}


def _asked(container: Any, assumed: Mapping[str, int] | None) -> dict[str, int]:
    return dict(assumed or {}) | requests_of(object_in(container, "resources"))


def add_amounts(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add the amounts of ``more`` to ``total``."""
    for name, size in more.items():
        total[name] = total.get(name, 0) + size


def largest(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the largest amount of each resource."""
    most: dict[str, int] = {}
    for amounts in several:
        for name, size in amounts.items():
            most[name] = max(most.get(name, 0), size)
    return most


ObjectLabels: TypeAlias = Mapping[str, str]


_STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node or flavor."""

    key: str
    """Key of the taint."""
    value: str = ""
    """Value of the taint."""
    effect: str = "NoSchedule"
    """Effect on pods that do not tolerate the taint: ``NoSchedule``, ``NoExecute`` or
    ``PreferNoSchedule``."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration, which lets pods run on nodes with certain taints."""

    key: str = ""
    """Key of the tolerated taint. An empty key with ``Exists`` tolerates all taints."""
    operator: str = "Equal"
    """``Equal`` compares the key and the value, whereas ``Exists`` compares only the key."""
    value: str = ""
    """Value of the tolerated taint, for ``Equal``."""
    effect: str = ""
    """Effect of the tolerated taint. An empty effect tolerates all effects."""

    __pydantic_config__ = _STRICT

    def tolerates(self, taint: Taint) -> bool:
        """Return True if pods with the toleration may run despite the taint."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on labels, as in ``matchExpressions``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    __pydantic_config__ = _STRICT

    def holds(self, labels: ObjectLabels) -> bool:
        """Return True if the labels meet the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                if value is None or len(self.values) != 1 or not (_is_whole(value) and _is_whole(self.values[0])):
                    return False
                above = int(value) - int(self.values[0])
                return above > 0 if self.operator == "Gt" else above < 0
        return False


def _is_whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal() and len(text) < 20


class Selector(NamedTuple):
    """Conditions on labels, all of which must be met. If the selector is ``None``, nothing
    matches."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: ObjectLabels) -> bool:
        """Return True if the labels meet all conditions."""
        return all(requirement.holds(labels) for requirement in self.requirements)

    def extended(self, more: Iterable[Requirement]) -> Selector:
        """Return the selector with additional conditions."""
        return Selector(tuple(dict.fromkeys([*self.requirements, *more])))


NOTHING = Selector((Requirement("", "In"),))
"""A selector that matches nothing."""


def label_selector(value: Any) -> Selector:
    """Return the label selector of a term or constraint. If there is no selector, nothing
    matches."""
    if not isinstance(value, dict):
        return NOTHING
    return Selector((*equal_to(object_in(value, "matchLabels")), *requirements_of(list_in(value, "matchExpressions"))))


def equal_to(labels: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """Return the conditions that require labels to have these values."""
    return tuple([Requirement(key, "In", (str(value),)) for key, value in sorted(labels.items())])


def requirements_of(listed: Iterable[Any]) -> tuple[Requirement, ...]:
    """Return the conditions in ``matchExpressions``."""
    return tuple(
        [
            Requirement(text_in(rule, "key"), text_in(rule, "operator"), tuple(map(str, list_in(rule, "values"))))
            for rule in listed
        ]
    )


def taints_of(listed: Iterable[Any]) -> tuple[Taint, ...]:
    """Return the taints in a list."""
    return tuple([Taint(text_in(one, "key"), text_in(one, "value"), text_in(one, "effect")) for one in listed])


def tolerations_of(listed: Iterable[Any]) -> tuple[Toleration, ...]:
    """Return the tolerations in a list."""
    return tuple(
        [
            Toleration(
                text_in(one, "key"), text_in(one, "operator") or "Equal", text_in(one, "value"), text_in(one, "effect")
            )
            for one in listed
        ]
    )
