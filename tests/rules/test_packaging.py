"""The distribution is called dagsim-gpu, because ``dagsim`` on PyPI is another project; extras come from a checkout."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TEXTS = [
    path
    for folder, ending in (("dagsim", "*.py"), ("docs", "*.md"), ("scripts", "*.py"), (".", "*.md"))
    for path in ((ROOT / folder).glob(ending) if folder == "." else (ROOT / folder).rglob(ending))
]


def test_the_distribution_has_a_name_of_its_own_and_the_command_keeps_its_own() -> None:
    assert PROJECT["name"] == "dagsim-gpu"
    assert PROJECT["scripts"] == {"dagsim": "dagsim.cli:main"}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_asks_to_install_the_other_project(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"pip install (?:-\S+ )*['\"]?dagsim(?!-gpu)\b.*", text) == []


def test_every_extra_that_is_named_exists() -> None:
    named = {name for path in TEXTS for name in re.findall(r"-e ['\"]+\.\[(\w+)\]", path.read_text(encoding="utf-8"))}
    assert {"fast", "parquet", "ray", "serve", "tensorboard"} <= named <= set(PROJECT["optional-dependencies"])
