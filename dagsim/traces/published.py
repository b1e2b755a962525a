"""Published figures of the traces, for comparison with our readings."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import NamedTuple

__all__ = ["PUBLISHED", "PublishedFigure", "published"]


class PublishedFigure(NamedTuple):
    """A published figure of a whole trace."""

    format: str
    path: str
    """Shell pattern of the data set's path (case-insensitive), if the format has several data sets."""
    statistic: str
    """Field of ``WorkloadInfo``, such as ``jobs`` or ``work.p50``, or ``gpu_hours``."""
    value: float
    source: str


_ERDOS = "ERDOS notebook; Alibaba's slides at SoCC 2019"
_SPAR = "Spar, distributions of 2,857,851 jobs"
_HELIOS = "HeliosArtifact, helios_cluster_summary.csv"
_ITP = "README of the ElasticFlow traces"

PUBLISHED = (
    PublishedFigure("alibaba2018", "*", "jobs", 4_201_014, _ERDOS),
    PublishedFigure("alibaba2018", "*", "tasks", 14_295_731, f"{_ERDOS} (rows)"),
    *(
        PublishedFigure(
            "alibaba2018", "*", f"{name}.{level}", value, _SPAR + ("; end - start" if name == "work" else "")
        )
        for name, levels in {
            "tasks_per_job": {"mean": 3.385, "p50": 2, "p75": 4, "p90": 7, "p95": 11, "p99": 20},
            "depth": {"mean": 2.425},
            "work": {"mean": 44.8, "p50": 5, "p75": 22, "p90": 96, "p95": 227, "p99": 603},
            "instances_per_task": {"mean": 43.1, "p50": 1, "p75": 4, "p90": 47, "p95": 176, "p99": 844},
        }.items()
        for level, value in levels.items()
    ),
    PublishedFigure("google2011", "*", "jobs", 672_074, "Reiss, Wilkes and Hellerstein 2011"),
    PublishedFigure("helios", "*earth*", "jobs", 872_886, _HELIOS),
    PublishedFigure("helios", "*saturn*", "jobs", 1_753_078, _HELIOS),
    PublishedFigure("helios", "*uranus*", "jobs", 490_309, _HELIOS),
    PublishedFigure("helios", "*venus*", "jobs", 246_708, _HELIOS),
    PublishedFigure("itp", "*", "jobs", 69_351, _ITP),
    PublishedFigure("itp", "*", "gpu_hours", 1_632_719.7, _ITP),
    PublishedFigure("openb2023", "*default*", "jobs", 8_152, "Weng et al., ATC 2023 (the default list)"),
    PublishedFigure("philly", "*", "jobs", 117_325, "README of philly-traces; Jeon et al., ATC 2019"),
)


def published(format: str, path: str) -> list[PublishedFigure]:
    """Published figures of the trace at ``path``."""
    return [figure for figure in PUBLISHED if figure.format == format and fnmatch(path.lower(), figure.path)]
