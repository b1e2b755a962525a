"""Forecasts of starts against their gates, on real logs: coverage, and errors beside baselines.

    python scripts/validate_forecast.py DATA [--log NAME ...] [--out results/forecast/backtests.json]

DATA is a folder with ``golden/slurm`` and ``traces/swf``. Each row runs ``dagsim eta --backtest``, in one process; its
command stands in the output. With ``--out``, rows of earlier runs stay in the file. Gates: shared/specs/forecast.md,
section 6.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command

from dagsim.errors import InputError
from dagsim.families.forecast.time_spans import WITHIN_S

Scores = dict[str, Any]


def of_baselines(scores: Scores, kind: str) -> float:
    """Our CRPS over that of the best baseline: of single ones raw or calibrated, or of limits and
    history pooled, which is calibrated.
    """
    named = {
        name: entry for name, entry in scores["baselines"].items() if (name == "limits_history") == (kind == "pooled")
    }
    values = [entry["raw" if kind == "raw" else "calibrated"]["crps_log"] for entry in named.values()]
    return float(scores["crps_log"] / min(values))


def once(scores: Scores) -> Scores:
    """The scores of the first forecast of each job alone."""
    baselines = {
        name: {kind: entry[kind]["once"] for kind in ("raw", "calibrated")}
        for name, entry in scores["baselines"].items()
    }
    return {**scores["once"], "baselines": baselines}


VALUES: dict[str, Callable[[Scores], float]] = {
    "coverage": lambda scores: scores["coverage_90"],
    "CRPS": lambda scores: scores["crps_log"],
    "median": lambda scores: scores["median_abs_log"],
    "CRPS / best raw": lambda scores: of_baselines(scores, "raw"),
    "CRPS / best calibrated": lambda scores: of_baselines(scores, "calibrated"),
    "CRPS / limits and history": lambda scores: of_baselines(scores, "pooled"),
    "CRPS / QBETS": lambda scores: scores["baselines"]["qbets"]["raw"]["ratio"][0],
    "CRPS / calibrated history": lambda scores: scores["baselines"]["history"]["calibrated"]["ratio"][0],
}
Gates = dict[str, tuple[float, float]]
"""Least and most of each value. ``once:`` is that of the first forecast of each job."""
SITE: Gates = {
    "coverage": (0.86, 0.95),
    "CRPS / best raw": (0.0, 0.75),
    "CRPS / best calibrated": (0.0, 0.90),
    "CRPS / limits and history": (0.0, 1.0),
    "median": (0.0, 0.80),
    "once: coverage": (0.86, 0.95),
    "once: CRPS / best raw": (0.0, 0.90),
    "once: CRPS / limits and history": (0.0, 1.0),
    "once: median": (0.0, 0.95),
}
ORACLE: Gates = {"CRPS": (0.0, 0.60), "median": (0.0, 0.20)}
SAME_POLICY: Gates = {"CRPS": (0.0, 0.0), "median": (0.0, 0.0)}
KNOWN: Gates = {"coverage": (0.86, 0.94), "CRPS / QBETS": (0.0, 0.45), "median": (0.0, 0.30)}
UNKNOWN: Gates = {"coverage": (0.86, 0.94), "CRPS / QBETS": (0.0, 0.90), "CRPS / calibrated history": (0.0, 1.0)}
SLURM, KTH, CTC = "golden/slurm", "traces/swf/KTH-SP2-1996-2.1-cln.swf.gz", "traces/swf/CTC-SP2-1996-3.1-cln.swf.gz"
FEWER = "--samples 10"
LOGS: dict[str, tuple[str, Gates]] = {
    "site-A": (f"{SLURM}/site-A", SITE),
    "site-A-again": (f"{SLURM}/site-A-again", SITE),
    "site-A-again-2": (f"{SLURM}/site-A-again-2", SITE),
    "site-C": (f"{SLURM}/site-C", SITE),
    "site-C-again": (f"{SLURM}/site-C-again", SITE),
    "site-A, true runs and arrivals": (f"{SLURM}/site-A --oracle", ORACLE),
    "KTH by EASY, true runs and arrivals": (
        f"{KTH} --forecast-from 60d --forecast-until 70d --interval 4h --policy easy --oracle",
        SAME_POLICY,
    ),
    "KTH by EASY": (f"{KTH} --forecast-from 60d --forecast-until 150d --interval 4h --policy easy", KNOWN),
    "KTH": (f"{KTH} --forecast-from 60d --forecast-until 150d --interval 4h {FEWER}", UNKNOWN),
    "KTH by EASY, held out": (f"{KTH} --forecast-from 160d --forecast-until 250d --interval 4h --policy easy", KNOWN),
    "KTH, held out": (f"{KTH} --forecast-from 160d --forecast-until 250d --interval 4h {FEWER}", UNKNOWN),
    "CTC, held out": (f"{CTC} --forecast-from 100d --forecast-until 130d --interval 4h {FEWER}", UNKNOWN),
    "CTC": (f"{CTC} --forecast-from 45d --forecast-until 75d --interval 4h {FEWER}", UNKNOWN),
}


def backtested(data: Path, name: str) -> dict[str, Any]:
    """Run one back-test, and judge it.

    Raises:
        InputError: The command failed.
    """
    file, *options = LOGS[name][0].split()
    arguments = ["eta", "--backtest", str(data / file), *options, "--json", "--workers", "1"]
    done = subprocess.run([sys.executable, "-m", "dagsim", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{name}: {done.stderr.strip()}")
    return judged(name, json.loads(done.stdout))


def judged(name: str, scores: Scores) -> dict[str, Any]:
    """The command of a back-test, its main scores, and what became of each gate."""
    words, gates = LOGS[name]
    values = {
        gate: round(VALUES[gate.removeprefix("once: ")](once(scores) if gate.startswith("once: ") else scores), 4)
        for gate in gates
    }
    missed = [gate for gate, (least, most) in gates.items() if not least - 1e-9 <= values[gate] <= most + 1e-9]
    return {
        "command": f"dagsim eta --backtest {words}",
        "n": scores["n"],
        "submissions": scores["submissions"],
        "coverage_90": scores["coverage_90"],
        "crps_log": scores["crps_log"],
        "intervals": scores["intervals"],
        "gates": {gate: [values[gate], *bounds] for gate, bounds in gates.items()},
        "missed": missed,
        "baselines": {
            key: [round(score[kind]["crps_log"], 4) for kind in ("raw", "calibrated")]
            for key, score in scores["baselines"].items()
        },
        "by_partition": {key: [score["n"], score["coverage_90"]] for key, score in scores["by_partition"].items()},
        "near": near(scores),
    }


def near(scores: Scores) -> dict[str, Any]:
    """The shares of starts within 1 min, 10 min and 1 h of the median: all, by partition and by horizon,
    each beside Slurm's own estimates and the best simple baseline.
    """
    raw = {key: score["raw"] for key, score in scores["baselines"].items() if key in ("slurm", scores["best_baseline"])}
    groups = {"all": scores | {"baselines": raw}, **scores["by_partition"], **scores["by_horizon"]}
    return {
        name: {"n": group["n"]}
        | {
            of: [round(score[share], 4) for share in WITHIN_S]
            for of, score in {"forecast": group, **group["baselines"]}.items()
        }
        for name, group in groups.items()
    }


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    rows: dict[str, Any] = command.read_json(options.out) if options.out is not None and options.out.exists() else {}
    for name in options.log or LOGS:
        rows[name] = row = backtested(options.data, name)
        say(f"{name}: {row['n']:,} rows of {row['submissions']:,} submissions")
        for gate, (value, least, most) in row["gates"].items():
            say(f"  {gate:32} {value:6.3f}  {least:g} to {most:g}{'  MISSED' if gate in row['missed'] else ''}")
    return {name: rows[name] for name in LOGS if name in rows}


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder with golden/ and traces/")
    parser.add_argument("--log", action="append", choices=list(LOGS), help="only this one; repeatable")
    return command.run(parser, _work, lambda rows: not any(row["missed"] for row in rows.values()))


if __name__ == "__main__":
    raise SystemExit(main())
