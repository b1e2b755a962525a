"""Write the tables of README and ``docs/`` anew, between their markers, from registries and from ``results/``.

    python scripts/make_pages.py [--check]

``--check`` changes nothing and exits with 1 where a page is not up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from docs_tables import placement_table, policy_table, reader_table
from figures import TABLES
from sentences import SENTENCES

__all__ = ["PAGES", "missing", "renewed"]

ROOT = Path(__file__).parent.parent
COSTS = ROOT / "results" / "baselines" / "cost.json"
COVERAGE = ROOT / "results" / "statistics" / "coverage.json"


def coverage_table() -> Iterator[str]:
    """Per population and method the coverage by n, mean over the pairs and worst; and false verdicts."""
    found = json.loads(COVERAGE.read_text(encoding="utf-8"))
    yield "| population | figure | " + " | ".join(f"n = {n}" for n in next(iter(found.values()))) + " |"
    yield "| --- | --- |" + " --- |" * len(next(iter(found.values())))
    for name, rows in found.items():
        if not name.startswith("equal"):
            for method, figure in METHODS.items():
                cells = [_covered(row.get(method)) for row in rows.values()]
                yield f"| {name} | {figure} | " + " | ".join(cells) + " |"
        cells = [f"{100 * row['false_verdicts']:.1f} %" for row in rows.values()]
        yield f"| {name} | equal policies with p < 0.05 | " + " | ".join(cells) + " |"


METHODS = {"t_log": "ratio", "median": "median ratio", "ratio_of_means": "of all job-seconds"}


def _covered(shares: dict[str, float] | None) -> str:
    return f"{shares['coverage']:.3f} [{shares['worst']:.3f}]" if shares else "none"


PAGES = {
    "docs/policies.md": {
        "policies": lambda: policy_table(json.loads(COSTS.read_text(encoding="utf-8"))["us_per_decision"]),
        "placements": placement_table,
        **TABLES["docs/policies.md"],
    },
    "docs/traces.md": {"readers": reader_table, **TABLES["docs/traces.md"]},
    "docs/statistics.md": {"coverage": coverage_table},
    **{page: {} for page in ("docs/pages.md", "docs/ramp.md", "docs/schedulers.md")},
    **{page: tables for page, tables in TABLES.items() if page not in ("docs/policies.md", "docs/traces.md")},
}
"""Per page, its tables by the name in their markers; a page may have sentences alone."""


def renewed(name: str) -> str:
    """The page with its tables made anew."""
    page = (ROOT / name).read_text(encoding="utf-8")
    for table, lines in PAGES[name].items():
        page = _between(page, table, lines())
    return page


def missing(name: str) -> list[str]:
    """The sentences of ``sentences.SENTENCES`` that the page does not say with the figures of the files."""
    page = " ".join((ROOT / name).read_text(encoding="utf-8").split())
    told = [text.format(*figures()) for text, figures in SENTENCES.get(name, ())]
    return [text for text in told if text not in page]


def _between(page: str, name: str, lines: Iterable[str]) -> str:
    begin, end = f"<!-- {name}: made by scripts/make_pages.py -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    if not found:
        raise ValueError(f"there is no line {begin!r}")
    _, _, after = rest.partition(end)
    return "\n".join([f"{before}{begin}\n", *lines, f"\n{end}{after}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    stale = [name for name in PAGES if renewed(name) != (ROOT / name).read_text(encoding="utf-8")]
    wrong = [f"{name}: should say: {text}" for name in {*PAGES, *SENTENCES} for text in missing(name)]
    print(*wrong, sep="\n", file=sys.stderr)
    if given.check:
        return int(bool(stale or wrong))
    for name in stale:
        (ROOT / name).write_text(renewed(name), encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
