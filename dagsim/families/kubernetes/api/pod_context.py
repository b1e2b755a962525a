"""Facts about a pod that follow from its status and from the other objects of its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dagsim.traces.documents import object_in, text_in


class PodContext(NamedTuple):
    """Facts about a pod that its spec does not contain, but a scheduler needs. A manifest in a log of
    dagsim contains them under ``resolved``, because the log has no other objects.
    """

    services: Mapping[str, Any]
    """The labels by which the pod's Services and its owner select it."""
    budgets: Mapping[str, Any]
    """The disruptions that each budget (PodDisruptionBudget) that selects the pod allows."""
    nominated: str
    """The node for which a waiting pod was nominated."""
    terminating: bool
    """True if the pod is being deleted."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> PodContext:
        """Read the context that a manifest contains."""
        stated = object_in(manifest, "resolved")
        return cls(
            services=object_in(stated, "services"),
            budgets=object_in(stated, "budgets"),
            nominated=text_in(stated, "nominated"),
            terminating=stated.get("terminating") is True,
        )

    def part(self) -> dict[str, Any]:
        """Return the part of a manifest that contains this context. It is empty if there is none."""
        stated = {name: value for name, value in self._asdict().items() if value}
        return {"resolved": stated} if stated else {}
