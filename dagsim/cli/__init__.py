"""The ``dagsim`` command: parse options, call the library, print. One file per command or group of
commands.

Slow imports are inside the command that needs them.
"""

from dagsim.cli import (
    bench,
    calibrate,
    capacity,
    compare,
    eta,
    evaluate,
    inputs,
    report,
    trace,
    train,
)
from dagsim.cli.app import app, main

__all__ = [
    "app",
    "bench",
    "calibrate",
    "capacity",
    "compare",
    "eta",
    "evaluate",
    "inputs",
    "main",
    "report",
    "trace",
    "train",
]
