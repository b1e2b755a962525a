"""The learning curves of ``results/decima/*.log.jsonl`` as one picture.

python scripts/draw_decima_curve.py --out results/decima/learning.png LOG...
"""

from __future__ import annotations

import argparse
import json
from math import nan
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    figure = Figure(figsize=(4.5 * len(args.logs), 3), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, path in zip(figure.subplots(1, len(args.logs), squeeze=False)[0], args.logs, strict=True):
        before, minutes, seconds = 0.0, [], []
        stage, last = 1, 0.0
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if row.get("stage", 1) != stage:
                stage, before = row["stage"], last
                minutes.append(last)
                seconds.append(nan)  # the next stage may be validated on other sequences
            last = before + row["minutes"]
            if "validation_s" in row:
                minutes.append(last)
                seconds.append(row["validation_s"])
        axes.plot(minutes, seconds, marker="o", markersize=3)
        axes.set_xlabel("minutes of training")
        axes.set_ylabel("mean completion time, greedy [s]")
        axes.set_title(f"{path.name.partition('.')[0]}: validation", fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(args.out)


if __name__ == "__main__":
    main()
