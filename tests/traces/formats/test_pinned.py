"""Readers make of every sample, and of damaged ones, what was recorded: jobs, report, facts and the words of errors."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.pinning import digest, plain
from traces.formats.damage import copy_field, drop_lines, set_field, set_node, swap_fields
from traces.formats.fuzzing import SAMPLES, Sample

from dagsim.errors import DagsimError
from dagsim.traces import TraceOptions, open_trace

Pinned = Callable[[str, Any], None]
OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "partial": {"keep_partial": True, "tenant": "user", "demand": "requested"},
    "scaled": {"time_scale": 0.5, "floor_s": 30.0, "start": 1, "limit": 5, "reference_gpu": "T4"},
    "gpus": {"gpus_per_task": 0.5, "timezone": "Europe/Berlin", "tenant": "partition", "processors": 64},
    "parts": {"mig": True, "shards": 4, "count_pull": True, "arrival": "qtime", "gpu_names": "gpu7=T4"},
    "strict": {"strict": True},
    **{f"as {name}": {"protocol": name} for name in ("pyss", "all-attempts", "rlscheduler")},
}


def read(folder: Path, sample: Sample, options: dict[str, Any]) -> Any:
    """Everything that a reader says of a sample."""
    try:
        trace = open_trace(folder / sample.opened, sample.format, TraceOptions(**{**dict(sample.options), **options}))
        jobs = list(trace.jobs())
        facts = [trace.meta, trace.assumptions, trace.cluster() if hasattr(trace, "cluster") else None]
        return plain([jobs, trace.report.to_dict(), str(trace.report), facts, trace.downtimes()])
    except DagsimError as error:
        # which fault of damaged JSON comes first, and where, depends on the version of Python
        return re.sub(
            r":\d+: (the JSON is nested too deeply|the JSON cannot be read|invalid JSON).*",
            ": invalid JSON",
            f"{type(error).__name__}: {error}",
        )


def short(result: Any, folder: Path) -> str:
    """An error in its first words with a digest of the rest, or a digest."""
    if isinstance(result, str):
        result = result.replace(str(folder), "")
        return f"{result[:60]} {digest(result)}"
    return digest(result)


def damages(content: bytes, seed: int) -> Iterator[bytes]:
    """The content with one realistic fault each."""
    rng = Random(seed)
    for damage in (set_field, copy_field, set_node, swap_fields, drop_lines) * 4:
        yield damage(content, rng)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.format} {sample.damaged}")
def test_a_sample_is_read_as_recorded(samples: Path, sample: Sample, pinned: Pinned) -> None:
    folder = samples / sample.format
    results = {name: short(read(folder, sample, options), folder) for name, options in OPTIONS.items()}
    pinned(f"{sample.format} {sample.opened} {sample.damaged}", results)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.format} {sample.damaged}")
def test_a_damaged_sample_is_read_as_recorded(samples: Path, sample: Sample, tmp_path: Path, pinned: Pinned) -> None:
    folder = tmp_path / sample.format
    shutil.copytree(samples / sample.format, folder)
    file = folder / sample.damaged
    content = file.read_bytes()
    results = []
    for damaged in damages(content, len(sample.damaged)):
        file.write_bytes(damaged)
        results.append(read(folder, sample, {}))
    results = [short(result, folder)[-8:] for result in results]
    pinned(f"{sample.format} {sample.opened} {sample.damaged}, damaged", " ".join(results))
