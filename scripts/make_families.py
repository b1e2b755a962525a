"""Write ``dagsim/families/names.json``: the names that each family adds, for errors about a family that is missing.

python scripts/make_families.py
"""

from __future__ import annotations

import json
from pathlib import Path

import dagsim
from dagsim.family import families, names_of

NAMES = Path(dagsim.__file__).parent / "families" / "names.json"


def names_text() -> str:
    """Return the text of the file."""
    return json.dumps({name: names_of(family) for name, family in families().items()}, indent=1) + "\n"


if __name__ == "__main__":
    NAMES.write_text(names_text(), encoding="utf-8")
