"""Tokens per second of measured training runs: ``python scripts/validate_llm.py --rows CSV [--fit] [--json]``.

``CSV`` has the columns of ``golden/llm/mpt.csv``; ``tokens_per_s`` may be absent. Where it is there, the errors are
printed beside those of one constant share of the peak rate per GPU type and precision, fitted to the same rows.
``--fit`` fits the constants of ``dagsim.families.fabric.llm`` to the rows by least squares of the logarithm, prints
them, and the errors of rows that a fit did not see: ten times, a random third of all pairs of model and GPU type is
kept aside, with all of their rows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from math import exp, log
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import command

from dagsim.errors import ConfigError
from dagsim.families.fabric.llm import FITTED, LlmFit, LlmTraining, step_s
from dagsim.model import gpu_type

SHAPES = {
    "125m": (12, 768), "350m": (24, 1024), "760m": (24, 1536), "1b": (24, 2048), "3b": (32, 2560), "7b": (32, 4096),
    "13b": (40, 5120), "30b": (48, 7168), "70b": (80, 8192),
}  # fmt: skip
"""Layers and width of the MPT models."""
GPUS = {"a100_40gb": "A100-40", "a100_80gb": "A100-80", "h100_80gb": "H100"}
Row = Mapping[str, str]
FOLDS = 10


def read_rows(file: Path) -> list[dict[str, str]]:
    """Read the rows.

    Raises:
        InputError: A column is missing, a model or GPU type is unknown, or a number is none.
    """
    rows = command.read_rows(file)
    for line, row in enumerate(rows, 2):
        for column, allowed in (("model", SHAPES), ("gpu", GPUS)):
            if row.get(column) not in allowed:
                raise ConfigError(f"{file}:{line}: {column} {row.get(column)!r}; allowed: {', '.join(allowed)}")
        with command.reading(f"{file}:{line}", "a run as in golden/llm/mpt.csv"):
            tokens_per_s(row)
    return rows


def tokens_per_s(row: Row, fit: LlmFit = FITTED) -> float:
    """Predicted tokens per second of the whole job."""
    layers, width = SHAPES[row["model"]]
    training = LlmTraining(
        float(row["params"]),
        layers,
        width,
        int(row["seq_len"]),
        int(row["micro_batch"]),
        int(row["grad_accum"]),
        precision="fp8" if row["precision"].endswith("fp8") else "bf16",
        sharding="full" if row["sharding"] == "FULL_SHARD" else "grad_op",
        checkpointing=row["activation_checkpointing"] == "True",
    )
    gpus = int(row["gpus"])
    return training.tokens(gpus) / step_s(training, gpu_type(GPUS[row["gpu"]]), gpus, fit=fit)


def _kind(row: Row) -> tuple[str, bool]:
    return row["gpu"], row["precision"].endswith("fp8")


def constant_share(rows: Sequence[Row], train: Sequence[Row]) -> list[float]:
    """Tokens per second by the median share of the peak rate (MFU) of ``train`` per GPU type and precision."""

    def rate(row: Row) -> float:
        layers, width = SHAPES[row["model"]]
        return int(row["gpus"]) / (6 * float(row["params"]) + 12 * layers * width * int(row["seq_len"]))

    shares = {
        _kind(row): median(float(one["tokens_per_s"]) / rate(one) for one in train if _kind(one) == _kind(row))
        for row in train
    }
    return [shares[_kind(row)] * rate(row) for row in rows]


def fitted(rows: Sequence[Row]) -> LlmFit:
    """Fit the constants to the rows, with little weight for outliers."""
    from scipy.optimize import least_squares

    def residuals(logs: Sequence[float]) -> list[float]:
        fit = LlmFit(*map(exp, logs))
        return [log(tokens_per_s(row, fit) / float(row["tokens_per_s"])) for row in rows]

    solution = least_squares(residuals, [log(value) for value in astuple(FITTED)], loss="soft_l1", f_scale=0.05)
    return LlmFit(*(float(f"{exp(value):.3g}") for value in solution.x))


def errors(predicted: Sequence[float], rows: Sequence[Row]) -> dict[str, float]:
    """Median and ninth decile of the relative error."""
    off = [abs(ours / float(row["tokens_per_s"]) - 1) for ours, row in zip(predicted, rows, strict=True)]
    return {"median": median(off), "p90": quantiles(off, n=10)[-1]}


def unseen(rows: Sequence[Row]) -> list[dict[str, float]]:
    """Errors of each third that was kept aside, and its median error over that of one share. Every GPU type and
    precision keeps some rows to fit.
    """
    folds: list[dict[str, float]] = []
    rng = random.Random(1)
    pairs = sorted({(row["model"], row["gpu"]) for row in rows})
    kinds = {_kind(row) for row in rows}
    while len(folds) < FOLDS:
        aside = {*rng.sample(pairs, len(pairs) // 3)}
        train = [row for row in rows if (row["model"], row["gpu"]) not in aside]
        if {_kind(row) for row in train} < kinds:
            continue
        judged = [row for row in rows if (row["model"], row["gpu"]) in aside]
        fit = fitted(train)
        fold = errors([tokens_per_s(row, fit) for row in judged], judged)
        constant = errors(constant_share(judged, train), judged)
        folds.append({"rows": len(judged), **fold, "median_to_one_share": fold["median"] / constant["median"]})
    return folds


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    rows = read_rows(options.rows)
    result: dict[str, Any] = {"tokens_per_s": [tokens_per_s(row) for row in rows]}
    for row, ours in zip(rows, result["tokens_per_s"], strict=True):
        say(f"{row['model']:5} {row['gpu']:9} x {row['gpus']:>3} {row['seq_len']:>6} tokens  {ours:12,.0f} tokens/s")
    if rows and all(row.get("tokens_per_s") for row in rows):
        result["errors"] = errors(result["tokens_per_s"], rows)
        result["constant_share"] = errors(constant_share(rows, rows), rows)
        say({name: result[name] for name in ("errors", "constant_share")})
        if options.fit:
            result["fit"] = fitted(rows)
            result["unseen"] = unseen(rows)
            say({"fit": astuple(result["fit"])} | dict(enumerate(result["unseen"])))
    return result


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--rows", type=Path, required=True, help="measured runs, as golden/llm/mpt.csv")
    parser.add_argument("--fit", action="store_true", help="fit the constants to the rows, and judge fits on others")
    return command.run(
        parser, _work, convert=lambda result: {**result, **({"fit": astuple(result["fit"])} if "fit" in result else {})}
    )


if __name__ == "__main__":
    raise SystemExit(main())
