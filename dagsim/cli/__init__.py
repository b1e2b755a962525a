"""The ``dagsim`` command, which parses options, calls the library and prints results. There is one
file per command or group of commands, and families add their own commands.

Commands import slow modules inside their functions, so that other commands start fast.
"""

from importlib import import_module

from dagsim.cli import comparing, draw, evaluate, inputs, inspect, sweep, tuning
from dagsim.cli.app import app, main
from dagsim.family import command_modules

__all__ = ["app", "comparing", "draw", "evaluate", "inputs", "inspect", "main", "sweep", "tuning"]

for _module in command_modules():
    import_module(_module)
