"""Figures that are kept below ``results/``, as the pages and their tables read them."""

from __future__ import annotations

import csv
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from dagsim.metrics.compare import Paired, Row, compared

__all__ = [
    "RESULTS",
    "agents",
    "coded",
    "decima",
    "decima_rows",
    "found_in",
    "made_by",
    "network",
    "ratio_of",
    "read_json",
    "read_traces",
    "rows_of",
    "spark_means",
    "split_cells",
]

RESULTS = Path(__file__).parent.parent / "results"


def read_json(file: str) -> Any:
    """A file below ``results/``."""
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))


def rows_of(file: str) -> list[dict[str, str]]:
    """The rows of a CSV file below ``results/``."""
    return list(csv.DictReader((RESULTS / file).read_text(encoding="utf-8").splitlines()))


def found_in(pattern: str, file: str) -> re.Match[str]:
    """The first match in a file below ``results/``.

    Raises:
        ValueError: There is none.
    """
    found = re.search(pattern, (RESULTS / file).read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"results/{file}: there is no {pattern!r}")
    return found


def decima(file: str, policy: str) -> Paired:
    """A policy beside the best heuristic of a file of ``results/decima``, the first line there."""
    return decima_rows(file)[policy][1].pair


def network(file: str, of: str, beside: str | None = None) -> float:
    """The ratio of a network of ``results/decima`` to the best heuristic, or to the one ``beside`` it."""
    mine = 1.0 if not of else decima(file, of if "[" in of else f"decima[checkpoint=results/decima/{of}.pt]").ratio
    return mine if beside is None else mine / decima(file, beside).ratio


@cache
def decima_rows(file: str) -> dict[str, tuple[float, Row]]:
    """Per policy of a file the mean and the comparison with the first; of the first with itself, too."""
    lines = read_json(f"decima/{file}.json")["lines"]
    values = {line["policy"]: line["by_seed_s"] for line in lines}
    first = next(iter(values))
    rows = compared(values, first) | {first: compared({"a": values[first], "b": values[first]}, "a")["b"]}
    return {policy: (sum(each) / len(each), rows[policy]) for policy, each in values.items()}


def spark_means() -> dict[str, Any]:
    """Per set of rules, workload and Spark heuristic its figures."""
    rules = {"parity": "heuristics", "default": "heuristics-default"}
    return {name: read_json(f"decima/{file}.json") for name, file in rules.items()}


@cache
def agents() -> list[dict[str, str]]:
    """The standings of the agents: the four cells, and the trace of ITP."""
    return rows_of("agents/cells.csv") + rows_of("agents/itp.csv")


def read_traces() -> list[dict[str, str]]:
    """The rows of ``results/validation/traces.md``: every trace at hand."""
    lines = (RESULTS / "validation" / "traces.md").read_text(encoding="utf-8").splitlines()
    heads = next(number for number, line in enumerate(lines) if line.startswith("| file |"))
    names = split_cells(lines[heads])
    return [dict(zip(names, split_cells(line), strict=True)) for line in lines[heads + 2 :] if line.startswith("|")]


def made_by(file: str) -> str:
    """The line of a table below ``results/`` that says command, commit, seeds, n and method."""
    return f"*{found_in(r'^Made .*$', file).group()}*"


def split_cells(line: str) -> list[str]:
    """The cells of a row of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def ratio_of(pair: Paired) -> str:
    """The ratio with its interval."""
    return f"{pair.ratio:.3f} ({pair.low:.3f} to {pair.high:.3f})"


def coded(policy: str) -> str:
    """``best preemptive (srsf)`` with the name of the policy as code."""
    return re.sub(r"\((.+)\)$", r"(`\1`)", policy)
