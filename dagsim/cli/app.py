"""The Typer app that all commands join, and the handling of errors."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from dagsim.cli.options import REMOVED
from dagsim.errors import DagsimError, InputError
from dagsim.family import refuse_missing
from dagsim.own_code import Allowed, allow
from dagsim.processes import Stops, exit_code, steady_streams
from dagsim.text import is_text, printable

ALLOW_CODE = "--allow-code"
ORDER = (
    *("eval", "baseline", "train", "replay", "tune", "compare", "report", "plot", "record", "serve", "sweep"),
    *("whatif", "plan", "eta", "bound", "bench", "paper", "why", "trace", "site", "calibrate", "workload"),
    *("config", "list", "warm"),
)
"""Commands in the usual order of use, which is also the order in ``dagsim --help``."""
_UNREAD = 128 + 13
"""Exit code of a command whose reader closed the pipe, as of a program that SIGPIPE ended."""
_READING = ("eval", "baseline", "replay", "tune", "whatif", "plan", "eta", "bound", "calibrate")
"""Commands that read traces with ``TraceFlags``."""


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a line, in which names from files may stand: all output of commands that is no table goes this way."""
    typer.echo(printable(str(text)), err=err, nl=nl)


class CommandGroup(typer.core.TyperGroup):
    """Commands, to which families add theirs; that of a missing family is refused with the family's name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            words, above = [args[0]], ctx
            while above.parent is not None:
                words, above = [above.info_name, *words], above.parent
            try:
                refuse_missing("commands", " ".join(words))
            except DagsimError as error:
                raise _ended(error, f"dagsim {error}", 2) from None
        return super().resolve_command(ctx, args)


class _Guarded(CommandGroup):
    """Report errors as one plain line instead of a traceback.

    A command may import code from outside dagsim only after it has called ``shared.trust``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = args[: args.index("--")] if "--" in args else args
        ctx.obj = Allowed([arg for arg in args if arg != ALLOW_CODE])
        if ALLOW_CODE in options:  # wherever it stands: every command that runs something takes it
            ctx.obj.everything = True
            args = [*(arg for arg in options if arg != ALLOW_CODE), *args[len(options) :]]
        _refuse_removed(options)
        with _guarded():
            rest: list[str] = super().parse_args(ctx, args)
        return rest

    def list_commands(self, ctx: Any) -> list[str]:
        names: list[str] = super().list_commands(ctx)
        return sorted(names, key=ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _guarded(), allow(ctx.obj):
                return super().invoke(ctx)
        except Exception as error:
            if type(error).__name__ == "NoSuchOption":  # a class of click, which typer does not export
                _name_owners(error, self)
            raise


@contextmanager
def _guarded() -> Iterator[None]:
    """Turn the errors of a command into an exit. What it has printed is out before it ends, or the exit says so."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except DagsimError as error:
        raise _ended(error, str(error), 2 if isinstance(error, InputError) else 1) from None
    except BrokenPipeError as error:
        _tell_notes(error)  # the reader has seen enough; whoever ran something should know where it is
        raise typer.Exit(_UNREAD) from None
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        code = 2 if error.errno == errno.ENAMETOOLONG else 1
        raise _ended(error, f"{named}{error.strerror or error}", code) from None
    except UnicodeError as error:
        raise _ended(error, f"not text that can be written: {error}", 1) from None
    except MemoryError as error:
        raise _ended(error, f"not enough memory{f' ({error})' if str(error) else ''}", 1) from None
    except KeyboardInterrupt as stop:
        _tell_notes(stop, "interrupted: ")
        raise typer.Exit(exit_code(stop)) from None


def _name_owners(error: Any, group: Any) -> None:
    """Add the commands that have the unknown option to the message of a ``NoSuchOption``."""
    owners = [
        name
        for name in sorted(group.commands, key=ORDER.index)
        if any(error.option_name in param.opts for param in group.commands[name].params)
    ]
    if owners:
        names = ", ".join(f"dagsim {name}" for name in owners)
        error.message, error.possibilities = f"{error.message}; it is an option of {names}", None


def _ended(error: Exception, text: str, code: int) -> typer.Exit:
    """Print an error and return the exit that ends the command. ``DAGSIM_DEBUG=1`` also prints the
    traceback.
    """
    if os.environ.get("DAGSIM_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    short = re.sub(r"\S{400,}", lambda word: f"{word[0][:200]}...{word[0][-100:]}", text)
    say(f"error: {short}", err=True)
    _tell_notes(error)
    return typer.Exit(code)


def _tell_notes(error: BaseException, before: str = "") -> None:
    """Print what was added to an error on its way: what is kept, and how to go on (``Store.noting``)."""
    for note in getattr(error, "__notes__", ()):
        say(f"{before}{note}", err=True)


def _refuse_removed(args: Sequence[str]) -> None:
    """Exit with the name of the replacement if the command or one of its options was removed."""
    if args and args[0] == "cluster":
        raise _ended(InputError(), "dagsim cluster import is now dagsim site import FILE -o site.yaml", 2)
    if not args or args[0] not in _READING:
        return
    for place, arg in enumerate(args):
        option, equals, value = arg.partition("=")
        if option not in REMOVED:
            continue
        if not equals:
            following = args[place + 1] if place + 1 < len(args) else "-"
            value = "true" if following.startswith("-") and not following[1:2].isdigit() else following
        raise _ended(InputError(), f"{option} is no longer an option; write {REMOVED[option].replace('{}', value)}", 2)


app = typer.Typer(
    cls=_Guarded,
    help="Simulate DAG jobs on heterogeneous GPU clusters, and compare schedulers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_GC_THRESHOLDS = 200_000, 20, 10
"""Thresholds of the garbage collector. A run creates millions of objects and few reference cycles;
with Python's default thresholds a replay takes 10 % longer.
"""


def main() -> None:
    """Run the command line."""
    gc.set_threshold(*_GC_THRESHOLDS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # fits of goodput are small: threads take six times the CPU
    steady_streams()
    if fault := _unusable():
        raise SystemExit(_ended(InputError(), fault, 2).exit_code)
    sys.path.append(str(Path.cwd()))  # where --algo my_module:MyPolicy is looked for, last
    atexit.register(gc.freeze)  # the exit frees all memory; a last collection takes 10 % of a short command
    with Stops() as stops:
        try:
            app()
        except SystemExit as end:
            if end.code == 128 + signal.SIGINT and stops.received is not None:
                raise SystemExit(128 + stops.received) from None
            raise


def _unusable() -> str:
    """What is wrong with the working folder or the command line as a whole; empty if nothing is."""
    try:
        texts = (*sys.argv[1:], str(Path.cwd()))
    except FileNotFoundError:
        return "the working folder no longer exists; change to another one"
    wrong = next((text for text in texts if not is_text(text)), None)
    return "" if wrong is None else f"{wrong!a}: not UTF-8, as names in files of dagsim have to be; rename it"


def _version(wanted: bool) -> None:
    if wanted:
        import dagsim

        say(f"dagsim {dagsim.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    allow_code: Annotated[
        bool,
        typer.Option(
            ALLOW_CODE,
            help="Import code outside dagsim that a run folder names without a recorded SHA-256 "
            "(docs/security.md). It can be anywhere in a command.",
        ),
    ] = False,
) -> None:
    pass
