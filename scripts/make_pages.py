"""Write the tables of README and ``docs/`` between their markers, from the registries and from ``results/``.

    python scripts/make_pages.py [--check]

``--check`` changes nothing; it names the pages that are out of date, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from figures import TABLES

__all__ = ["pages", "renewed"]

ROOT = Path(__file__).parent.parent
MARKED = re.compile(r"(<!-- ([\w-]+): made by scripts/make_pages\.py -->\n).*?(\n<!-- end of \2 -->)", re.DOTALL)


def pages(root: Path = ROOT) -> dict[Path, list[str]]:
    """Pages with tables, and the names of these tables."""
    paths = [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "results").rglob("*.md"))]
    names = {path: [name for _, name, _ in MARKED.findall(path.read_text(encoding="utf-8"))] for path in paths}
    return {path: tables for path, tables in names.items() if tables}


def renewed(page: str) -> str:
    """Return the text of a page with its tables written again.

    Raises:
        KeyError: The page has a marker of a table that ``figures.TABLES`` lacks.
    """
    return MARKED.sub(lambda match: "\n".join([match[1], *TABLES[match[2]](), match[3]]), page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = [path for path in pages() if renewed(text := path.read_text(encoding="utf-8")) != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if options.check else 'renewed'}", file=sys.stderr)
        if not options.check:
            path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
