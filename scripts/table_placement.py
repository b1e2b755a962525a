"""Figures and drawing of ``results/network``: ``python scripts/table_placement.py [--sweep FOLDER]``.

``FOLDER`` is that of ``dagsim sweep results/network/placement.yaml``; its mean and 95th percentile of completion times
replace ``results/network/placement.csv``. ``placement.png`` is drawn from that file: ratios to ``random`` on the same
seeds, geometric means with Student's intervals on the logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import command
import numpy as np

from dagsim.metrics.intervals import geometric_mean

OUT = Path(__file__).parent.parent / "results" / "network"
COLUMNS = ("base", "network.topology.up", "policy", "seed", "jct_s.mean", "jct_s.p95")
UPS, RULES = ("1:1", "2:1", "4:1"), ("consolidate", "topology")
TITLES = {"philly": "jobs as in Philly", "itp": "jobs as in ITP", "llm": "language models"}


def ratios(rows: Sequence[Mapping[str, str]], metric: str) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Ratio to ``random`` and its interval, by workload, oversubscription and placement."""
    values: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows:
        rule = row["policy"].partition("=")[2].rstrip("]")
        values.setdefault((row["base"], row["network.topology.up"], rule), {})[row["seed"]] = float(row[metric])
    result = {}
    for (base, up, rule), by_seed in values.items():
        if rule == "random":
            continue
        reference = values[base, up, "random"]
        logs = np.log([[by_seed[seed] / reference[seed] for seed in sorted(reference)]])
        bounds = geometric_mean(logs)
        result[base, up, rule] = float(bounds.value[0]), float(bounds.low[0]), float(bounds.high[0])
    return result


def draw(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Draw mean and 95th percentile, a panel per workload."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(8, 4.6), sharex=True, sharey="row", layout="constrained")
    for line, (metric, label) in enumerate((("jct_s.mean", "mean"), ("jct_s.p95", "95th percentile"))):
        bounds = ratios(rows, metric)
        for panel, base in enumerate(TITLES):
            axis = axes[line][panel]
            for shift, rule, color in ((-0.08, RULES[0], "#e69f00"), (0.08, RULES[1], "#0072b2")):
                value, low, high = np.array([bounds[base, up, rule] for up in UPS]).T
                bars = [value - low, high - value]
                axis.errorbar(
                    np.arange(3) + shift, value, bars, fmt="o-", ms=4, lw=1.2, color=color, label=rule
                )  # fmt: skip
            axis.axhline(1.0, color="gray", lw=0.8)
            axis.set_xticks(range(3), UPS)
            if line == 0:
                axis.set_title(TITLES[base])
        axes[line][0].set_ylabel(f"{label} of\ncompletion times / random")
    axes[1][1].set_xlabel("oversubscription of the leaves")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    file = OUT / "placement.csv"
    if options.sweep is not None:
        swept = [{name: row[name] for name in COLUMNS} for row in command.read_rows(options.sweep / "results.csv")]
        command.write_rows(file, sorted(swept, key=lambda row: list(row.values())))
    kept = command.read_rows(file)
    draw(kept, OUT / "placement.png")
    result = {
        f"{metric} {base} {up} {rule}": bounds
        for metric in ("jct_s.mean", "jct_s.p95")
        for (base, up, rule), bounds in sorted(ratios(kept, metric).items())
    }
    say(result)
    return result


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--sweep", type=Path, help="folder of the sweep")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
