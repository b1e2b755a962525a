"""Fixtures that more than one test file uses."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from hypothesis import settings
from support.lacking import (
    LACKING,
    asked_for,
    begin,
    imported,
    needed,
    skipped,
    without_families,  # noqa: F401  a fixture
)
from support.pinning import as_recorded
from support.slow import (  # noqa: F401  hooks of pytest
    add_options,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_configure_node,
    pytest_report_header,
    pytest_runtest_logreport,
    pytest_sessionfinish,
)

from dagsim.family import families

os.environ.setdefault("DAGSIM_WARM", "0")  # no run of a test starts a compilation beside it
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small networks gain nothing from threads, and lose where cores are busy
for number in (signal.SIGINT, signal.SIGHUP):  # as from a terminal, if `nohup` or `&` had them ignored
    if signal.getsignal(number) is signal.SIG_IGN:
        with suppress(ValueError):
            signal.signal(number, signal.SIG_DFL)
settings.register_profile("repeatable", deadline=None, derandomize=True)  # however busy the machine is
settings.load_profile("repeatable")  # `pytest --hypothesis-profile=default` searches anew
# Typer builds the commands of an application for each call, which takes as long as a small run.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with ``traces/`` and ``golden/`` that the environment variable DAGSIM_DATA names."""
    named = os.environ.get("DAGSIM_DATA")
    if not named:
        pytest.skip("DAGSIM_DATA is not set")
    folder = Path(named)
    for part in ("traces", "golden"):
        if not (folder / part).is_dir():
            pytest.fail(f"DAGSIM_DATA={named}: there is no folder {part}/ in it")
    return folder


def pytest_runtest_setup(item: pytest.Item) -> None:
    begin(str(item.path))
    if item.get_closest_marker("data") is not None and not os.environ.get("DAGSIM_DATA"):
        pytest.skip("DAGSIM_DATA is not set")
    for mark in item.iter_markers("family"):
        if missing := set(mark.args) - families().keys():
            pytest.skip(f"this installation lacks the family {', '.join(sorted(missing))}")
    if LACKING and item.get_closest_marker("whole") is not None:
        pytest.skip(f"this installation lacks the family {', '.join(sorted(LACKING))}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if LACKING and report.failed and (name := asked_for(item.path) or imported(str(report.longrepr))):
        skipped(report, item.path, f"this installation lacks {name!r}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if LACKING and report.failed and (name := needed(str(report.longrepr))):
        skipped(report, collector.path, f"this installation lacks the family {name}")
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)
    parser.addoption("--pin", action="store_true", help="record what tests with `pinned` see, instead of comparing")


@pytest.fixture
def pinned(request: pytest.FixtureRequest) -> Callable[[str, Any], None]:
    """Compare a value with the one recorded under a key in the JSON file beside the test file.

    After a change that is meant to move results, record the new values by ``pytest -n 0 --pin FILE``, and read the
    difference before it is committed.
    """
    path = request.path.with_suffix(".json")

    def check(key: str, value: Any, rel: float | None = None) -> None:
        kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        if not request.config.getoption("--pin"):
            assert key in kept, f"{path.name} lacks {key!r}: record it with --pin"
            if rel is None and as_recorded(value, kept[key]):
                return
            expected = kept[key] if rel is None else pytest.approx(kept[key], rel=rel, abs=rel)
            assert value == expected, f"not as recorded in {path.name}; if that is meant, record it with --pin"
        elif value != kept.get(key):  # never by several processes at once
            kept[key] = value
            lines = [f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept)]
            path.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    return check


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than processors, because some tests wait for other programs."""
    return (os.cpu_count() or 1) + 1
