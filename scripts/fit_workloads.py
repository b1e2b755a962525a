"""Fit the presets ``like-philly``, ``like-itp``, ``like-openb``, ``like-alibaba``, ``like-ctc``, ``like-helios`` and
``like-pai``.

    python scripts/fit_workloads.py --data DIR [--only NAME ...] [--out dagsim/workload/fitted]

``DIR`` holds the publishers' files (``SOURCES`` says which). The result is a small YAML file of parameters each: no row
of a trace. Philly, ITP, openb, CTC and Alibaba are fitted to the jobs themselves (``dagsim.workload.fitting``). Of
Helios and PAI the full logs are fitted in the same way where ``DIR`` has them; otherwise

- ``like-helios`` follows Helios's published summary (median and mean durations, mean GPUs, GPU-time, sizes of its
  virtual clusters) and, for its arrivals, the upward steps of the number of GPU jobs in the minute-by-minute record of
  one virtual cluster;
- ``like-pai`` has the durations of 5,000 real PAI jobs and, for want of its arrivals, those of openb, another of
  Alibaba's GPU clusters.

The jobs of a log that was begun on a running cluster are cut: its first 1 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields, replace
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import yaml
from command import read_rows

from dagsim.config.bundled import FITTED
from dagsim.files import write_text
from dagsim.traces import open_trace
from dagsim.workload.distributions import Constant, Quantiles
from dagsim.workload.fitting import columns_of, fit_arrivals, fit_sessions, quantiles
from dagsim.workload.sessions import SessionKind, Sessions
from dagsim.workload.shapes import Alibaba

SOURCES = {
    "like-philly": ("philly/philly_pollux.csv.gz",),
    "like-itp": ("microsoft-itp-2021/raw-traces.tar.gz",),
    "like-openb": ("alibaba-gpu-v2023/openb_pod_list_default.csv",),
    "like-alibaba": ("alibaba-v2018/batch_task_random6600.csv.gz",),
    "like-ctc": ("swf/CTC-SP2-1996-3.1-cln.swf.gz",),
    "like-helios": (
        "helios/Earth/cluster_log.csv",
        "helios/Earth/vc6YE_cluster_sequence_vc.csv.gz",
        "helios/helios_cluster_summary.csv",
        "helios/Earth/Earth_gpu_number.csv",
    ),
    "like-pai": ("alibaba-gpu-v2020/pai_job_table.csv", "alibaba-gpu-v2020/hydra_20_ddl.csv.gz"),
}
"""Files below ``DIR``. The first ones of Helios and PAI, the full logs, are optional."""

SUMMARIES = {
    "like-philly": "20,000 jobs as in Microsoft's Philly (2017): long sessions of similar jobs, 15 virtual clusters",
    "like-itp": "20,000 jobs as in Microsoft's ITP clusters (2021): bursts, gangs of up to 32 and more GPUs",
    "like-openb": "20,000 pods as in Alibaba's openb GPU cluster (2023): shares of GPUs, CPUs, priorities",
    "like-alibaba": "20,000 CPU-only DAG jobs as in Alibaba's batch cluster (2018)",
    "like-ctc": "20,000 jobs as on CTC's IBM SP2 (1996): a batch system of parallel jobs, a GPU for each processor",
    "like-helios": "20,000 jobs drawn from the published summary of SenseTime's Helios (2020)",
    "like-pai": "20,000 one-GPU jobs with durations as in Alibaba's PAI (2020), arrivals as in openb",
}


def of_log(name: str, data: Path) -> Sessions:
    """Fit to the jobs themselves."""
    shape = Alibaba() if name == "like-alibaba" else None
    return fit_sessions(columns_of(open_trace(data / SOURCES[name][0]).jobs()), shape)


def of_ctc(name: str, data: Path) -> Sessions:
    """Fit to the jobs of a batch system, with a GPU for each processor."""
    fitted = of_log(name, data)
    return replace(fitted, kinds=tuple(replace(kind, gpus=Constant(1.0), cpus=Constant(0.0)) for kind in fitted.kinds))


def of_helios(name: str, data: Path) -> Sessions:
    """Fit to Helios's log if it is present, otherwise to the summary."""
    full, minutes, summary, sizes = (data / path for path in SOURCES[name])
    if full.exists():
        return of_log(name, data)
    total = next(row for row in read_rows(summary) if row["id"] == "total")
    capacity = next(row for row in read_rows(sizes))
    virtual = sorted((float(value) for key, value in capacity.items() if key not in ("date", "total")), reverse=True)
    there = [value for value in virtual if value > 0]
    starts = _upward(minutes)
    return Sessions(
        _helios_kinds(total),
        fit_arrivals(np.array(starts)),
        quantiles(np.array([0.0, 30.0, 60.0])),
        alike=0.8,
        tenants=len(there),
        zipf=_exponent(there),
    )


def _helios_kinds(total: dict[str, str]) -> tuple[SessionKind, ...]:
    """Kinds of 1 to 32 GPUs with the published mean of GPUs, and durations that give the published GPU-time.

    Shares fall geometrically from one width to the next; durations are log-normal, their median in proportion to a
    power of the width.
    """
    widths = np.array([1, 2, 4, 8, 16, 32], float)
    median, mean = float(total["med_run_time_gpu"]), float(total["avg_run_time_gpu"])
    gpu_time = sum(float(total[f"{end}_gpu_time"]) for end in ("complete", "cancel", "fail"))
    wanted = gpu_time / float(total["gpu_job_num"])
    falls = _root(lambda ratio: float((_shares(ratio) * widths).sum()) - float(total["avg_gpu_num"]), 0.01, 1.0)
    shares = _shares(falls)
    sigma = sqrt(2 * log(mean / median))

    def grown(power: float) -> np.ndarray:
        return np.asarray(mean * widths**power / (shares * widths**power).sum())

    power = _root(lambda power: float((shares * widths * grown(power)).sum()) - wanted, -1.0, 2.0)
    points = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1)
    scale = NormalDist()
    kinds = []
    for width, share, average in zip(widths, shares, grown(power), strict=True):
        values = [exp(sigma * scale.inv_cdf(min(max(p, 0.001), 0.9999))) for p in points]
        factor = average / float(Quantiles(tuple(zip(points, values, strict=True))).at(_middles()).mean())
        table = tuple((point, float(f"{value * factor:.3g}")) for point, value in zip(points, values, strict=True))
        kinds.append(SessionKind(float(f"{share:.3g}"), Quantiles(table), instances=Constant(float(width))))
    return tuple(kinds)


def _shares(ratio: float) -> np.ndarray:
    weights = ratio ** np.arange(6)
    return np.asarray(weights / weights.sum())


def _root(of: Callable[[float], float], low: float, high: float) -> float:
    """Find the zero of a rising function by bisection."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle) < 0 else (low, middle)
    return high


def _upward(path: Path) -> list[float]:
    """Times at which the number of GPU jobs rose, once for each job. Ends cannot hide these
    arrivals.
    """
    rises_s, before = [], None
    for minute, row in enumerate(read_rows(path)):
        now = int(row["total_gpujob_num"])
        if before is not None:
            rises_s += [60.0 * minute] * max(now - before, 0)
        before = now
    return rises_s


def of_pai(name: str, data: Path) -> Sessions:
    """Fit to PAI's log if it is present, otherwise combine durations of PAI with the arrivals of
    openb.
    """
    full, slice_ = (data / path for path in SOURCES[name])
    if full.exists():
        return of_log(name, data)
    other = of_log("like-openb", data)
    work = quantiles(np.array([job.tasks[0].work for job in open_trace(slice_).jobs()]))
    longest = max(other.kinds, key=lambda kind: kind.share)
    return replace(other, kinds=(SessionKind(1.0, work, longest.jobs),))


def _exponent(sizes: list[float]) -> float:
    """Zipf exponent of falling sizes: the slope of their logs over those of their ranks."""
    ranks = np.log(np.arange(1, len(sizes) + 1))
    return float(f"{-np.polyfit(ranks, np.log(sizes), 1)[0]:.3g}")


def _middles() -> np.ndarray:
    return (np.arange(20_000) + 0.5) / 20_000


def _written(value: Any) -> Any:
    """Return plain values for YAML, without fields at their defaults except ``kind``. Whole numbers
    have no point.
    """
    match value:
        case tuple():
            return [_written(item) for item in value]
        case bool() | str() | None:
            return value
        case int() | float():
            return int(value) if float(value).is_integer() else float(value)
    names = {field.name: field.default for field in fields(value)}
    kept = {name: own for name, default in names.items() if (own := getattr(value, name)) != default}
    kind = {"kind": value.kind} if "kind" in names else {}
    return kind | {name: _written(own) for name, own in kept.items()}


FITS: dict[str, Callable[[str, Path], Sessions]] = {
    **dict.fromkeys(SOURCES, of_log),
    "like-ctc": of_ctc,
    "like-helios": of_helios,
    "like-pai": of_pai,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the publishers' files")
    parser.add_argument("--only", nargs="*", choices=list(FITS), default=list(FITS))
    parser.add_argument("--out", type=Path, default=FITTED)
    options = parser.parse_args()
    for name in options.only:
        fitted = replace(FITS[name](name, options.data), count=20_000, measure=(1000, -1000))
        there = [path for path in SOURCES[name] if (options.data / path).exists()]
        head = f"# {SUMMARIES[name]}\n# Parameters, fitted by scripts/fit_workloads.py to {', '.join(there)}.\n"
        text = yaml.safe_dump(_written(fitted), sort_keys=False, default_flow_style=None, width=120)
        write_text(options.out / f"{name}.yaml", head + text)
        print(f"{name}: {len(fitted.kinds)} kinds, {fitted.rates.per_hour:g} sessions an hour", flush=True)


if __name__ == "__main__":
    main()
