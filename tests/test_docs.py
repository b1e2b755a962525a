"""What the pages in ``docs/`` say is so."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from dagsim.experiment.config import load_config
from dagsim.experiment.run import simulate
from dagsim.policies import POLICIES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
COSTS: dict[str, float] = json.loads((ROOT / "results" / "baselines" / "cost.json").read_text())["us_per_decision"]
TABLED = re.findall(r"^\| `([a-z0-9][a-z0-9-]*)` \|", PAGE.partition("## Placements")[0], re.MULTILINE)
SPECS = dict.fromkeys(TABLED + re.findall(r'--algo "([^"]+)"', PAGE))


def test_the_tables_are_those_of_the_registry() -> None:
    spec = importlib.util.spec_from_file_location("make_policy_page", ROOT / "scripts" / "make_policy_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.renewed(PAGE, COSTS) == PAGE, "run scripts/make_policy_page.py"


def test_a_decision_costs_little_unless_its_definition_forces_more() -> None:
    dear = {name for name, cost in COSTS.items() if cost > 50}
    assert dear <= {entry.name for entry in POLICIES.describe() if "costly" in entry.tags}
    assert set(COSTS) == set(POLICIES.names())


@pytest.mark.parametrize("algo", SPECS)
def test_every_algo_of_the_page_runs(algo: str) -> None:
    config = load_config(None, ["workload=heterogeneous-dag", "workload.count=8", f"policy={algo}"])
    assert simulate(config, algo, 1).summary.jobs_completed == 8
