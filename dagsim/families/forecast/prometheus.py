"""Metrics of a queue and of its forecasts, for Prometheus."""

from __future__ import annotations

from time import time

from dagsim.families.forecast.journal import Journal, Watched
from dagsim.families.forecast.time_spans import WITHIN_S
from dagsim.text import printable


def metrics(rows: list[Watched], journal: Journal, t: float, failures: int) -> str:
    """Return the metrics in the text format of Prometheus (0.0.4)."""
    share, count = journal.coverage()
    parts: dict[str, list[Watched]] = {}
    for row in rows:
        parts.setdefault(row.partition, []).append(row)

    def labelled(name: str, value: float, **labels: str) -> str:
        pairs = [f'{key}="{_escaped(text)}"' for key, text in labels.items()]
        return f"{name}{{{','.join(pairs)}}} {value:g}" if pairs else f"{name} {value:g}"

    def of_parts(name: str, quantile: str) -> list[str]:
        return [
            labelled(name, sorted(getattr(row, quantile) for row in part)[len(part) // 2], partition=key)
            for key, part in sorted(parts.items())
        ]

    outcomes = journal.outcomes()
    families = [
        ("dagsim_waiting_jobs", "gauge", "Waiting jobs.",
         [labelled("dagsim_waiting_jobs", len(part), partition=key) for key, part in sorted(parts.items())]),
        ("dagsim_forecast_median_seconds", "gauge", "Median over jobs of the median forecast until the start.",
         of_parts("dagsim_forecast_median_seconds", "median_s")),
        ("dagsim_forecast_p90_seconds", "gauge", "Median over jobs of the 0.9 quantile until the start.",
         of_parts("dagsim_forecast_p90_seconds", "q90_s")),
        ("dagsim_forecast_coverage_ratio", "gauge", "Share of the last week's 90% intervals that contained the start.",
         [labelled("dagsim_forecast_coverage_ratio", share)] if count else []),
        ("dagsim_forecasts_scored", "gauge", "Forecasts of the last week whose jobs have started.",
         [labelled("dagsim_forecasts_scored", count)]),
        ("dagsim_starts_scored", "gauge", "Forecasts of the last week whose jobs have started, by method.",
         [labelled("dagsim_starts_scored", tally.counts[0], **labels) for labels, tally in outcomes]),
        ("dagsim_starts_within", "gauge", "Those whose jobs started within this many seconds of the median.",
         [labelled("dagsim_starts_within", number, **labels, within=f"{most_s:g}")
          for labels, tally in outcomes
          for number, most_s in zip(tally.counts[2:], WITHIN_S.values(), strict=True)]),
        ("dagsim_snapshots_skipped_total", "counter", "Snapshots without a forecast.",
         [labelled("dagsim_snapshots_skipped_total", journal.skipped)]),
        ("dagsim_command_failures_total", "counter", "Calls of the command without a snapshot.",
         [labelled("dagsim_command_failures_total", failures)]),
        ("dagsim_snapshot_age_seconds", "gauge", "Age of the snapshot that was forecast last.",
         [labelled("dagsim_snapshot_age_seconds", max(time() - t, 0.0))] if t else []),
    ]  # fmt: skip
    lines = []
    for name, kind, words, samples in families:
        if samples:
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
