"""Write the tables of ``docs/policies.md`` anew, between its markers, from the registry and the measured costs.

    python scripts/make_policy_page.py [--check]

``--check`` changes nothing and exits with 1 where the page is not up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from dagsim.experiment.handbook import placement_table, policy_table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "policies.md"
COSTS = ROOT / "results" / "baselines" / "cost.json"


def renewed(page: str, costs: dict[str, float]) -> str:
    """The page with its tables made anew."""
    return _between(_between(page, "policies", policy_table(costs)), "placements", placement_table())


def _between(page: str, name: str, lines: Iterable[str]) -> str:
    begin, end = f"<!-- {name}: made by scripts/make_policy_page.py -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return "\n".join([f"{before}{begin}\n", *lines, f"\n{end}{after}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    made = renewed(page, json.loads(COSTS.read_text(encoding="utf-8"))["us_per_decision"])
    if given.check:
        return int(made != page)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
