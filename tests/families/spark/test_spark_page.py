"""The statements of ``docs/spark.md`` and the table of heuristics hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

from dagsim.families.spark.api import SPARK_POLICIES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "results" / "decima" / "README.md").read_text(encoding="utf-8")
HEURISTICS = RESULTS.partition("<!-- heuristics:")[2].partition("<!-- end of heuristics -->")[0]
ROWS = re.findall(r"^\| `([^`]+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", HEURISTICS, re.MULTILINE)


def test_the_example_runs() -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/spark.md", "exec"), {})


def test_every_policy_of_the_table_can_be_made_and_all_are_there() -> None:
    assert {row[0].partition("[")[0] for row in ROWS} == set(SPARK_POLICIES.names())
    for row in ROWS:
        SPARK_POLICIES.create(row[0])


def test_the_figures_are_those_of_the_results() -> None:
    lines = json.loads((ROOT / "results" / "decima" / "heuristics.json").read_text())["lines"]
    means = {(line["policy"], line["system"]): f"{line['mean_s']:.1f}" for line in lines}
    assert {policy for policy, _ in means} == {row[0] for row in ROWS}
    for policy, *shown in ROWS:
        assert shown == [means[policy, f"{name} {rules}"] for rules in ("parity", "default") for name in ("W1", "W2")]
