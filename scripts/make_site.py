"""Build the documentation pages with ProperDocs, which continues MkDocs and reads its files.

    python scripts/make_site.py [FOLDER]      # pages in FOLDER, by default build/site

The pages are the Markdown files of the repository in their own folders, so that links between them hold. Among them
are the reference pages that ``scripts/make_pages.py`` makes. The JSON Schema of configurations is published beside
them, for editors that complete YAML.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)")


def settings() -> dict[str, Any]:
    """The settings of ProperDocs, with all pages below ``docs/`` in the navigation."""
    mkdocs: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = sections(mkdocs)
    listed = {name for names in pages.values() for name in names}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = str(path.relative_to(ROOT))
        if name not in listed:
            pages["Reference" if name.startswith("docs/reference/") else "Guides"].append(name)
    return mkdocs


def sections(mkdocs: Mapping[str, Any]) -> dict[str, list[str]]:
    """The pages of each section of the navigation. ``README.md`` stands before them."""
    return {title: names for section in mkdocs["nav"][1:] for title, names in section.items()}


def stage(folder: Path) -> Path:
    """Copy every page, and every file that a page links to, into ``folder``, and write
    ``mkdocs.yml``. Return the latter.
    """
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    mkdocs = settings()
    listed = [page for names in sections(mkdocs).values() for page in names]
    others = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "results").rglob("*.md"))]
    for name in dict.fromkeys(("README.md", *listed, *others)):
        _copy(ROOT / name, pages)
    shutil.copy(ROOT / "configs" / "dagsim.schema.json", pages)
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(mkdocs, sort_keys=False), encoding="utf-8")
    return folder / "mkdocs.yml"


def _copy(page: Path, pages: Path) -> None:
    """Copy a page and the files (not folders) that it links to."""
    links = [page.parent / link for link in _LINK.findall(page.read_text(encoding="utf-8"))]
    for file in (page, *links):
        to = pages / file.resolve().relative_to(ROOT)
        if file.is_file() and not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)


def main(folder: str = "build/site") -> int:
    """Build the pages; 1 if ProperDocs warns of anything."""
    file = stage(Path(folder).parent)
    build = [sys.executable, "-m", "properdocs", "build", "--strict", "--quiet", "-f", str(file)]
    return subprocess.run([*build, "--site-dir", str(Path(folder).resolve())], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
