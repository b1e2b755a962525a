"""The ``dagsim`` command: parse, call, print; one file per command or group of commands.

Whatever is slow to import is imported inside the command that needs it.
"""

from dagsim.cli import (
    capacity,
    cluster,
    compare,
    config,
    evaluate,
    fetch,
    listing,
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
    workload,
)
from dagsim.cli.app import app, main

__all__ = [
    "app",
    "capacity",
    "cluster",
    "compare",
    "config",
    "evaluate",
    "fetch",
    "listing",
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
    "workload",
]
