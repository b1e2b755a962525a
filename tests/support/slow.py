"""Slow tests: a run of the whole suite draws an eighth of them, so that it ends within minutes; ``--all`` runs all.

``slow.txt`` lists them with their seconds. ``pytest --all --record-slow`` measures it again, on a machine that does
nothing else. Whoever names files or tests on the command line gets all of theirs.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

LISTED = Path(__file__).with_suffix(".txt")
SLOW_S = 2.0
SHARE = 8
"""One slow test in so many is drawn, from as many that take about as long, so that all runs take about as long."""

_seconds: Counter[str] = Counter()


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help=f"run all slow tests, not one in {SHARE} of them")
    parser.addoption("--slow-seed", type=int, metavar="SEED", help="draw the slow tests that this seed drew before")
    parser.addoption("--record-slow", action="store_true", help=f"list the tests of more than {SLOW_S:g} s as slow")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.option.slow_seed = config.workerinput["slow_seed"]
        return
    whole = config.args_source == pytest.Config.ArgsSource.TESTPATHS
    if config.option.all or (not whole and config.option.slow_seed is None):
        config.option.slow_seed = -1
    elif config.option.slow_seed is None:
        config.option.slow_seed = random.SystemRandom().randrange(10**6)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers of xdist draw the same tests."""
    node.workerinput["slow_seed"] = node.config.option.slow_seed


def pytest_report_header(config: pytest.Config) -> str | None:
    if (seed := config.option.slow_seed) < 0:
        return None
    return f"slow tests: one in {SHARE}, drawn with --slow-seed {seed} (--all runs all)"


def listed() -> tuple[str, ...]:
    """The slow tests, the longest first."""
    rows = [line.split(maxsplit=1) for line in LISTED.read_text().splitlines()]
    return tuple(name for _, name in sorted(rows, key=lambda row: -float(row[0])))


def drawn(seed: int) -> frozenset[str]:
    """One of each ``SHARE`` slow tests that follow each other in the list, or all of them if the seed is negative."""
    slow = listed()
    if seed < 0:
        return frozenset(slow)
    draw = random.Random(seed)
    return frozenset(draw.choice(slow[first : first + SHARE]) for first in range(0, len(slow), SHARE))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow, kept, left_out = set(listed()), drawn(config.option.slow_seed), []
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
            if item.nodeid not in kept:
                left_out.append(item)
    if left_out:
        gone = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in gone]
        config.hook.pytest_deselected(items=left_out)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.record_slow and not hasattr(session.config, "workerinput"):
        rows = sorted((name, seconds) for name, seconds in _seconds.items() if seconds > SLOW_S)
        LISTED.write_text("".join(f"{seconds:6.1f} {name}\n" for name, seconds in rows))
