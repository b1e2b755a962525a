"""Measured training throughputs, in samples per second, by model, GPU type and batch size.

The shipped table (``throughputs.csv``; one GPU, with a source in each row) combines two published
sets of measurements:

- Sia (Jayaram Subramanya et al., SOSP 2023; siasosp23/artifacts), ``placements-*.csv``: T4 (EC2
  g4dn.12xlarge), V100 with 32 GB (Azure ND40rs_v2), A100 with 40 GB (DGX-A100), RTX 2080 Ti. For
  each model, the table contains the largest batch that T4, V100 and A100 all ran, and the best
  batch of each type. NCF's V100 rows are left out, because they were limited by input and 9 times
  slower than a T4.
- Gavel (Narayanan et al., OSDI 2020), ``simulation_throughputs.json``: V100, P100, K80; steps per
  second times batch.

The two sets come from different software, so compare speeds only within one model name.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path
from typing import NamedTuple

from dagsim.errors import ConfigError
from dagsim.files import open_lines
from dagsim.model.gpu import GPU_TYPES, GpuType, canonical

_SHIPPED = Path(__file__).with_name("throughputs.csv")


class Measurement(NamedTuple):
    """A measured throughput: ``model`` trains ``samples_per_s`` on one ``gpu`` with ``batch``
    samples per step.
    """

    model: str
    gpu: str
    batch: int
    samples_per_s: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class ThroughputTable:
    """A table of measured throughputs, from which speed ratios between GPU types are computed.

    If a type was not measured, a measured type with the same peak rates is used. This is the same
    chip with a different memory size (V100-16 and V100-32, A100-40 and A100-80).
    """

    rows: tuple[Measurement, ...]
    _found: dict[str, dict[str, dict[int, float]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_model: dict[str, dict[str, dict[int, float]]] = {}
        for row in self.rows:
            by_model.setdefault(row.model, {}).setdefault(canonical(row.gpu), {})[row.batch] = row.samples_per_s
        object.__setattr__(self, "_found", by_model)

    @classmethod
    def read(cls, path: Path) -> ThroughputTable:
        """Read a table from a CSV file. The columns are model, gpu, batch, samples_per_s and,
        optionally, source.

        Raises:
            ConfigError: The file cannot be read, lacks a column, or has an invalid number. The
                message names ``file:line``.
        """
        try:
            with open_lines(path, ConfigError) as file:
                return cls(tuple(_measurements(path, csv.DictReader(file))))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot read the throughput table ({error})") from None

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all measured models, in the order of the table's rows."""
        return tuple(self._found)

    def batches(self, model: str, gpu: GpuType) -> Mapping[int, float]:
        """Return the samples per second of ``model`` at each batch size on ``gpu``, or on the same
        chip with a different memory size. The result is empty if there is no such measurement.
        """
        by_gpu = self._found.get(model, {})
        if gpu.name in by_gpu:
            return by_gpu[gpu.name]
        for name, batches in by_gpu.items():
            if name in GPU_TYPES and _chip(GPU_TYPES[name]) == _chip(gpu):
                return batches
        return {}

    def ratio(self, model: str, gpu: GpuType, reference: GpuType, batch: int | None = None) -> float | None:
        """Return the speed of training ``model`` on ``gpu`` relative to ``reference`` at the batch
        size ``batch``.

        Without ``batch``, use the largest batch size that was measured on both types. Return
        ``None`` if ``batch`` (or, without ``batch``, any batch size) was not measured on both
        types.
        """
        ours, theirs = self.batches(model, gpu), self.batches(model, reference)
        common = ours.keys() & theirs.keys()
        if batch is None:
            batch = max(common, default=None)
        return ours[batch] / theirs[batch] if batch is not None and batch in common else None

    def best_ratio(self, model: str, gpu: GpuType, reference: GpuType) -> float | None:
        """Return the speed ratio if each type trains at its own fastest batch size, as after tuning
        the batch size for each GPU. Return None if a type was not measured.
        """
        ours, theirs = self.batches(model, gpu), self.batches(model, reference)
        return max(ours.values()) / max(theirs.values()) if ours and theirs else None


@cache
def shipped_throughputs() -> ThroughputTable:
    """Return the table that ships with dagsim."""
    return ThroughputTable.read(_SHIPPED)


def _chip(gpu: GpuType) -> tuple[float, float | None, float | None]:
    return gpu.fp32_tflops, gpu.tf32_tflops, gpu.fp16_tflops


def _measurements(path: Path, reader: csv.DictReader[str]) -> Iterable[Measurement]:
    missing = {"model", "gpu", "batch", "samples_per_s"} - set(reader.fieldnames or ())
    if missing:
        raise ConfigError(f"{path}:1: the throughput table lacks the columns {', '.join(sorted(missing))}")
    for row in reader:
        try:
            batch, rate = int(row["batch"]), float(row["samples_per_s"])
        except (TypeError, ValueError):
            batch, rate = 0, 0.0
        if batch < 1 or not 0 < rate < inf:
            raise ConfigError(
                f"{path}:{reader.line_num}: batch must be a whole number above 0 and samples_per_s a number above 0, "
                f"got {row['batch']!r} and {row['samples_per_s']!r}"
            )
        yield Measurement(row["model"], row["gpu"], batch, rate, row.get("source") or "")
