"""The ``dagsim`` command: parse, call, print; one file per command or group of commands.

Imports that take long stand inside the command that needs them.
"""

from dagsim.cli import (
    capacity,
    compare,
    evaluate,
    inputs,
    plot,
    record,
    replay,
    report,
    serve,
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
    "capacity",
    "compare",
    "evaluate",
    "inputs",
    "main",
    "plot",
    "record",
    "replay",
    "report",
    "serve",
    "sweep",
    "trace",
    "train",
    "tune",
    "warm",
    "why",
]
