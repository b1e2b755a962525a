"""Profiled Spark queries: DAGs of stages with observed durations, from a folder or a file.

The form is that of decima-sim's TPC-H data as JSON: a list of ``{"query", "size", "edges": [[parent, child]], "stages":
[{"first_wave_ms", "rest_wave_ms", "fresh_ms": {executors: [ms]}}]}``, plain or compressed by gzip.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagsim.errors import ModelError, TraceError
from dagsim.systems.spark.job import SparkJob
from dagsim.systems.spark.waves import Waves

__all__ = ["PROFILE_FILE", "QUERIES", "SIZES", "read_profiles"]

PROFILE_FILE = "tpch_dags.json.gz"
"""The file that is looked for in a folder."""

QUERIES = 22
SIZES = ("2g", "5g", "10g", "20g", "50g", "80g", "100g")

_GZIP = b"\x1f\x8b"


def read_profiles(path: Path, *, warmup_ms: float = 1000.0) -> list[SparkJob]:
    """All profiled queries, as jobs that arrive at 0: by query, then by size as in ``SIZES``.

    Raises:
        TraceError: ``path`` cannot be read, or holds no such profiles.
    """
    file = path / PROFILE_FILE if path.is_dir() else path
    try:
        raw = file.read_bytes()
        document = json.loads(gzip.decompress(raw) if raw.startswith(_GZIP) else raw)
        found = sorted(document, key=lambda each: (int(each["query"]), _size(each["size"])))
        jobs = [_job(each, warmup_ms) for each in found]
    except OSError as error:
        raise TraceError(f"{file}: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, EOFError) as error:
        raise TraceError(f"{file}: not Spark profiles ({type(error).__name__}: {error})") from None
    if not jobs:
        raise TraceError(f"{file}: there is no profile in it")
    return jobs


def _job(found: Mapping[str, Any], warmup_ms: float) -> SparkJob:
    stages = []
    for stage in found["stages"]:
        waves = Waves.of(
            *(_samples(stage[wave]) for wave in ("first_wave_ms", "rest_wave_ms", "fresh_ms")), warmup_ms=warmup_ms
        )
        if waves.tasks != stage.get("num_tasks", waves.tasks):
            raise ModelError(f"query {found['query']!r}: {waves.tasks} durations for {stage['num_tasks']} tasks")
        stages.append(waves)
    edges = [(parent, child) for parent, child in found["edges"]]
    return SparkJob.of(f"tpch-{found['query']}-{found['size']}", stages, edges)


def _samples(by_executors: Mapping[str, list[int]]) -> dict[int, list[int]]:
    return {int(executors): samples for executors, samples in by_executors.items()}


def _size(text: object) -> tuple[int, str]:
    """Known sizes in their order, others behind them by name."""
    name = str(text)
    return (SIZES.index(name), name) if name in SIZES else (len(SIZES), name)
