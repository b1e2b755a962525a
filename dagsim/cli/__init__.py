"""The ``dagsim`` command: parse options, call the library, print. One file per command or group of
commands.

Slow imports are inside the command that needs them.
"""

from dagsim.cli import (
    bench,
    bound,
    calibrate,
    capacity,
    compare,
    eta,
    evaluate,
    inputs,
    paper,
    plot,
    replay,
    report,
    sweep,
    trace,
    train,
    tune,
    warm,
    why,
)
from dagsim.cli.app import app, main

__all__ = [
    "app",
    "bench",
    "bound",
    "calibrate",
    "capacity",
    "compare",
    "eta",
    "evaluate",
    "inputs",
    "main",
    "paper",
    "plot",
    "replay",
    "report",
    "sweep",
    "trace",
    "train",
    "tune",
    "warm",
    "why",
]
