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
from typing import Any, NamedTuple

import command

from dagsim.errors import InputError

Scores = dict[str, Any]


class Gate(NamedTuple):
    """A value of the scores, by its key or by a function of them, and where it must lie."""

    name: str
    of: str | Callable[[Scores], float]
    least: float
    most: float

    def value(self, scores: Scores) -> float:
        """The value to judge."""
        return float(scores[self.of]) if isinstance(self.of, str) else self.of(scores)


def of_baselines(scores: Scores, kind: str, once: bool) -> float:
    """Our CRPS over that of the best baseline: of single ones raw or calibrated, or of limits and
    history pooled, which is calibrated.
    """
    named = {
        name: entry for name, entry in scores["baselines"].items() if (name == "limits_history") == (kind == "pooled")
    }
    values = [entry["raw" if kind == "raw" else "calibrated"] for entry in named.values()]
    part = (lambda entry: entry["once"]) if once else (lambda entry: entry)
    ratio: float = part(scores)["crps_log"] / min(part(entry)["crps_log"] for entry in values)
    return ratio


def of_qbets(scores: Scores) -> float:
    """Our CRPS over that of QBETS."""
    return float(scores["baselines"]["qbets"]["raw"]["ratio"][0])


SITE = (
    Gate("coverage", "coverage_90", 0.86, 0.95),
    Gate("CRPS / best raw", lambda scores: of_baselines(scores, "raw", False), 0.0, 0.75),
    Gate("CRPS / best calibrated", lambda scores: of_baselines(scores, "calibrated", False), 0.0, 0.90),
    Gate("CRPS / limits and history", lambda scores: of_baselines(scores, "pooled", False), 0.0, 1.0),
    Gate("median", "median_abs_log", 0.0, 0.80),
    Gate("once: coverage", lambda scores: scores["once"]["coverage_90"], 0.86, 0.95),
    Gate("once: CRPS / best raw", lambda scores: of_baselines(scores, "raw", True), 0.0, 0.90),
    Gate("once: CRPS / limits and history", lambda scores: of_baselines(scores, "pooled", True), 0.0, 1.0),
    Gate("once: median", lambda scores: scores["once"]["median_abs_log"], 0.0, 0.95),
)
ORACLE = (
    Gate("CRPS", "crps_log", 0.0, 0.60),
    Gate("median", "median_abs_log", 0.0, 0.20),
)
SAME_POLICY = (
    Gate("CRPS", "crps_log", 0.0, 0.0),
    Gate("median", "median_abs_log", 0.0, 0.0),
)
KNOWN = (
    Gate("coverage", "coverage_90", 0.86, 0.94),
    Gate("CRPS / QBETS", of_qbets, 0.0, 0.45),
    Gate("median", "median_abs_log", 0.0, 0.30),
)
UNKNOWN = (
    Gate("coverage", "coverage_90", 0.86, 0.94),
    Gate("CRPS / QBETS", of_qbets, 0.0, 0.90),
    Gate(
        "CRPS / calibrated history", lambda scores: scores["baselines"]["history"]["calibrated"]["ratio"][0], 0.0, 1.0
    ),
)
SLURM, KTH, CTC = "golden/slurm", "traces/swf/KTH-SP2-1996-2.1-cln.swf.gz", "traces/swf/CTC-SP2-1996-3.1-cln.swf.gz"
FEWER = "--futures 10"
LOGS: dict[str, tuple[str, tuple[Gate, ...]]] = {
    "site-A": (f"{SLURM}/site-A", SITE),
    "site-A-again": (f"{SLURM}/site-A-again", SITE),
    "site-A-again-2": (f"{SLURM}/site-A-again-2", SITE),
    "site-A, true runs and arrivals": (f"{SLURM}/site-A --oracle", ORACLE),
    "KTH by EASY, true runs and arrivals": (
        f"{KTH} --from 60d --until 70d --every 4h --algo easy --oracle",
        SAME_POLICY,
    ),
    "KTH by EASY": (f"{KTH} --from 60d --until 150d --every 4h --algo easy", KNOWN),
    "KTH": (f"{KTH} --from 60d --until 150d --every 4h {FEWER}", UNKNOWN),
    "KTH by EASY, held out": (f"{KTH} --from 160d --until 250d --every 4h --algo easy", KNOWN),
    "KTH, held out": (f"{KTH} --from 160d --until 250d --every 4h {FEWER}", UNKNOWN),
    "CTC, held out": (f"{CTC} --from 100d --until 130d --every 4h {FEWER}", UNKNOWN),
    "CTC": (f"{CTC} --from 45d --until 75d --every 4h {FEWER}", UNKNOWN),
}


def backtested(data: Path, name: str) -> dict[str, Any]:
    """Run one back-test, and judge it.

    Raises:
        InputError: The command failed.
    """
    file, *options = LOGS[name][0].split()
    made = [sys.executable, "-m", "dagsim", "eta", "--backtest", str(data / file), *options, "--json", "--workers", "1"]
    done = subprocess.run(made, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{name}: {done.stderr.strip()}")
    return judged(name, json.loads(done.stdout))


def judged(name: str, scores: Scores) -> dict[str, Any]:
    """The command of a back-test, its main scores, and what became of each gate."""
    words, gates = LOGS[name]
    values = {gate.name: round(gate.value(scores), 4) for gate in gates}
    missed = [gate.name for gate in gates if not gate.least - 1e-9 <= values[gate.name] <= gate.most + 1e-9]
    return {
        "command": f"dagsim eta --backtest {words}",
        "n": scores["n"],
        "submissions": scores["submissions"],
        "coverage_90": scores["coverage_90"],
        "crps_log": scores["crps_log"],
        "intervals": scores["intervals"],
        "gates": {gate.name: [values[gate.name], gate.least, gate.most] for gate in gates},
        "missed": missed,
        "baselines": {
            key: [round(each[kind]["crps_log"], 4) for kind in ("raw", "calibrated")]
            for key, each in scores["baselines"].items()
        },
        "by_partition": {key: [each["n"], each["coverage_90"]] for key, each in scores["by_partition"].items()},
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
