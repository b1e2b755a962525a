"""The draw of slow tests."""

from math import ceil
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import slow

ROOT = Path(__file__).resolve().parents[2]


class Item(SimpleNamespace):
    def add_marker(self, mark: object) -> None:
        self.marks = [mark]


def drawn(seed: int) -> set[str]:
    """The slow tests that a run with a seed would have, and one that is not slow."""
    items = [Item(nodeid=name) for name in (*sorted(slow.listed()), "tests/test_quick.py::test_it")]
    dropped: list[Item] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items))
    config = SimpleNamespace(option=SimpleNamespace(slow_seed=seed), hook=hook)
    slow.pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
    assert len(items) + len(dropped) == len(slow.listed()) + 1
    return {item.nodeid for item in items}


def test_a_seed_draws_its_share_and_all_seeds_together_everything() -> None:
    parts = [drawn(seed) for seed in range(100)]
    assert all("tests/test_quick.py::test_it" in part for part in parts)
    assert drawn(7) == parts[7]
    assert {len(part) - 1 for part in parts} == {ceil(len(slow.listed()) / slow.SHARE)}
    assert set.union(*parts) >= set(slow.listed())


def test_all_draws_take_about_as_long() -> None:
    rows = [line.split(maxsplit=1) for line in slow.LISTED.read_text().splitlines()]
    seconds = {name: float(number) for number, name in rows}
    mean = sum(seconds.values()) / slow.SHARE
    assert all(0.85 * mean < sum(seconds[name] for name in slow.drawn(seed)) < 1.25 * mean for seed in range(100))


def test_without_a_seed_all_run() -> None:
    assert drawn(-1) == {*slow.listed(), "tests/test_quick.py::test_it"}


@pytest.mark.parametrize(
    ("arguments", "source", "expected"),
    [
        ({"all": True, "slow_seed": None}, "TESTPATHS", -1),
        ({"all": False, "slow_seed": None}, "ARGS", -1),
        ({"all": False, "slow_seed": 5}, "TESTPATHS", 5),
        ({"all": False, "slow_seed": 5}, "ARGS", 5),
    ],
)
def test_only_the_whole_suite_draws(arguments: dict[str, object], source: str, expected: int) -> None:
    kind = pytest.Config.ArgsSource[source]
    config = SimpleNamespace(option=SimpleNamespace(**arguments), args_source=kind)
    slow.pytest_configure(config)  # type: ignore[arg-type]
    assert config.option.slow_seed == expected
    header = slow.pytest_report_header(config)  # type: ignore[arg-type]
    assert (header is None) if expected < 0 else f"--slow-seed {expected}" in header


@pytest.mark.whole
def test_what_is_listed_exists() -> None:
    """A test that was renamed leaves the list, or it would run every time."""
    gone = []
    for name in slow.listed():
        path, function = name.split("[")[0].split("::")
        file = ROOT / path
        if not file.exists() or f"def {function}(" not in file.read_text():
            gone.append(name)
    assert not gone, "mend tests/support/slow.txt, by hand or by `pytest --all --record-slow`"
