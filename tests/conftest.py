"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small networks gain nothing from threads, and lose where cores are busy
for number in (signal.SIGINT, signal.SIGHUP):  # as from a terminal, if `nohup` or `&` had them ignored
    if signal.getsignal(number) is signal.SIG_IGN:
        with suppress(ValueError):
            signal.signal(number, signal.SIG_DFL)
settings.register_profile("repeatable", deadline=None, derandomize=True)  # however busy the machine is
settings.load_profile("repeatable")  # `pytest --hypothesis-profile=default` searches anew


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
