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
    report,
    trace,
    train,
    warm,
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
    "report",
    "trace",
    "train",
    "warm",
]
