"""The ``dagsim`` command: parse, call, print; one file per command or group of commands.

Whatever is slow to import is imported inside the command that needs it.
"""

from dagsim.cli import (
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
    trace,
    train,
    tune,
    warm,
    workload,
)
from dagsim.cli.app import app, main

__all__ = [
    "app",
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
    "trace",
    "train",
    "tune",
    "warm",
    "workload",
]
