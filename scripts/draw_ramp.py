"""Blocking, completion time and speed-up on RAMP by policy and distribution of beta, as a picture.

    python scripts/draw_ramp.py --results results/ramp/ddls.json --out docs/images/ramp.png [--rows ROWS]

``--results`` is what ``compare_ramp.py --out`` wrote. A line on a bar of blocking spans its seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagsim.errors import DagsimError, InputError
from dagsim.report.plots.style import COLOURS, INK, dress, figure, headline, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["drawn"]

ROWS = (
    "max, first_fit",
    "acceptable_jct, first_fit",
    "constant[degree=4], first_fit",
    "on_time[least=2], best_fit",
    "on_time[least=4], best_fit",
    "on_time[least=8], best_fit",
)
PANELS = (
    ("mean_blocking", "blocking rate", "jobs lost"),
    ("jct_s", "mean completion time [s]", "completion time"),
    ("speedup", "mean speed-up over one GPU", "speed-up"),
)


def drawn(found: dict[str, Any], rows: tuple[str, ...]) -> Figure:
    """Draw three panels: a group of bars per distribution of beta, a bar per policy and placer.

    Raises:
        InputError: A row is not among the results.
    """
    betas = [name for name in found if isinstance(found[name], dict)]
    for beta in betas:
        for row in rows:
            if row not in found[beta]:
                raise InputError(f"beta {beta} has no row {row!r}; there are: {'; '.join(found[beta])}")
    made = figure(12.0, 4.2)
    width = 0.8 / len(rows)
    for number, (key, label, title) in enumerate(PANELS, 1):
        axes = made.add_subplot(1, 3, number)
        dress(axes, "distribution of beta", label)
        headline(axes, title)
        for place, row in enumerate(rows):
            at = [group + (place - (len(rows) - 1) / 2) * width for group in range(len(betas))]
            values = [found[beta][row][key] or 0.0 for beta in betas]
            axes.bar(at, values, width * 0.92, color=COLOURS[place % len(COLOURS)], label=row)
            if key == "mean_blocking":
                spans = [found[beta][row]["blocking"] for beta in betas]
                axes.vlines(at, list(map(min, spans)), list(map(max, spans)), color=INK, linewidth=1.0)
        axes.set_xticks(range(len(betas)), betas)
    made.legend(*made.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="what compare_ramp.py --out wrote")
    parser.add_argument("--out", type=Path, required=True, help="the picture (.png, .svg or .pdf)")
    parser.add_argument("--rows", default=";".join(ROWS), help="policies with placers, separated by semicolons")
    args = parser.parse_args()
    try:
        found = json.loads(args.results.read_text(encoding="utf-8"))
        print(save(drawn(found, tuple(args.rows.split(";"))), args.out))
    except (DagsimError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
