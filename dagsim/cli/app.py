"""The Typer app that all commands belong to. Errors end a command with one plain line."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from dagsim.cli.options import refuse_several
from dagsim.errors import DagsimError, InputError
from dagsim.family import refuse_missing
from dagsim.own_code import Allowed, allow
from dagsim.spelling import nearest
from dagsim.standard_streams import OutputError, steady_streams
from dagsim.stops import Stops, exit_code
from dagsim.text import is_text, on_one_line

ALLOW_CODE = "--allow-code"
GROUPS = {
    "Simulate": ("eval", "baseline", "tune", "replay", "sweep", "bench", "paper"),
    "Look at runs": ("compare", "report", "plot", "record", "serve", "why"),
    "Your cluster": ("site", "calibrate", "whatif", "plan", "eta"),
    "Train agents, compute bounds": ("train", "bound"),
    "Inputs and settings": ("trace", "workload", "config", "list", "warm"),
}
"""Commands by purpose, in the order of ``dagsim --help``."""
_PANELS = {name: panel for panel, names in GROUPS.items() for name in names}
ORDER = tuple(_PANELS)
ALIASES = {
    "explain": "why",
    "compile": "warm",
    "animate": "record",
    "reproduce": "paper",
    "size": "plan",
    "lower-bound": "bound",
}
"""Other names for commands."""
_EXPECTED = {"simulate": "eval", "run": "eval", "evaluate": "eval", "test": "eval"}
"""Commands that newcomers expect, each with the command that does the same in dagsim."""
SPELLINGS = {
    "--algo": ("--policy",),
    "--scheduler": ("--policy",),
    "--on": ("--executor",),
    "--output": ("--out",),
    "--to": ("--out",),
    "--keep": ("--yaml",),
    "--page": ("--html",),
    "--limit": ("--max-jobs", "--max-cells"),
    "--most": ("--max-gpus",),
    "--start": ("--skip",),
    "--plot": ("--plots",),
    "--no-plot": ("--no-plots",),
    "--report": ("--dropped",),
    "--prices": ("--price",),
    "--cost": ("--price",),
    "--energy-prices": ("--price",),
    "--every": ("--interval",),
    "--futures": ("--samples",),
    "--arrivals": ("--samples-with-arrivals",),
    "--shapes": ("--alternatives",),
    "--from": ("--forecast-from",),
    "--until": ("--forecast-until",),
    "--draw": ("--test-seed",),
    "--format": ("--file-type",),
    "--num-seeds": ("--seeds",),
    "--show": ("--top",),
}
"""Other spellings of options, each with the options that it may stand for. A command accepts such a
spelling if it has one of these options and no option with that spelling.
"""
_UNREAD = 128 + 13
"""Exit code of a command whose output pipe was closed by its reader, as for a program that SIGPIPE
ended.
"""
_UsageError: Any = typer.BadParameter.__mro__[1]
"""The exception for faults in a command line, which Typer does not export."""


Function = TypeVar("Function", bound=Callable[..., Any])


class Command(typer.core.TyperCommand):
    """A command that accepts alternative spellings of its options. Its help ends with the options
    that are left out of the list, which would otherwise be too long.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params:
            text = getattr(param, "help", None)
            if getattr(param, "hidden", False) and param.metavar and text:
                self.help = f"{self.help or ''}\n\nAlso {param.opts[0]} {param.metavar}: {text}"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {name for param in self.params for name in (*param.opts, *getattr(param, "secondary_opts", ()))}
        end = args.index("--") if "--" in args else len(args)
        args = [*_in_new_spelling(args[:end], names), *args[end:]]
        self._judge_missing_values(ctx, args, names)
        self._judge_repeated(ctx, args)
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def _judge_missing_values(self, ctx: Any, args: list[str], names: Collection[str]) -> None:
        """Reject an option without a value: one at the end of the command line, or one that is
        followed by another option.
        """
        valued = {
            name
            for param in self.params
            if param.param_type_name == "option" and not (getattr(param, "is_flag", 0) or getattr(param, "count", 0))
            for name in param.opts
        }
        for option, value in pairwise(args):
            if option == "--":
                return
            if option in valued and re.match("--[a-z]", value):
                hint = "" if value.partition("=")[0] in names else f" (if it is the value, write {option}={value})"
                raise _UsageError(f"{option} needs a value, but {value} follows it{hint}", ctx)
        if args and args[-1] in valued and "--" not in args:
            example = re.search(rf"{args[-1]} [^-\s]\S*", self.help or "")
            raise _UsageError(f"{args[-1]} needs a value{f', as in {example[0]}' if example else ''}", ctx)

    def _judge_repeated(self, ctx: Any, args: list[str]) -> None:
        """Reject several schedulers for a command that runs one. Warn about every other option that
        is repeated with different values, because only the last value counts.
        """
        collecting = copy(self)
        collecting.params = [copy(param) for param in self.params]
        single = [param for param in collecting.params if param.param_type_name == "option" and not param.multiple]
        for param in single:
            param.multiple = True
        try:
            values = collecting.make_parser(ctx).parse_args(args=list(args))[0]
        except _UsageError:  # super().parse_args below reports this error
            return
        for param in single:
            several = list(dict.fromkeys(values.get(param.name, ())))
            if len(several) < 2:
                continue
            option = next((name for name in param.opts if name.startswith("--")), param.opts[0])
            if option == "--policy":
                refuse_several(ctx, several)
            if getattr(param, "is_flag", False):
                say(f"warning: {param.opts[0]} and {param.secondary_opts[0]}: only the last one counts", err=True)
            else:
                ignored = ", ".join(several[:-1])
                say(f"warning: {option} is given several times: {several[-1]} replaces {ignored}", err=True)

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _in_new_spelling(args: Sequence[str], names: Collection[str]) -> list[str]:
    """Replace alternative spellings with the command's own options, such as ``--algo sjf`` with
    ``--policy sjf``.
    """
    written: list[str] = []
    for arg in args:
        option, equals, value = arg.partition("=")
        new = next((name for name in SPELLINGS.get(option, ()) if name in names), None)
        written.append(arg if new is None or option in names else f"{new}{equals}{value}")
    if "--workers" in names or "--executor" not in names:
        return written
    for place, arg in enumerate(written):
        option, equals, value = arg.partition("=")
        if option == "--workers" and (equals or place + 1 < len(written)):
            count = value if equals else written.pop(place + 1)
            if any(other.partition("=")[0] == "--executor" for other in written):
                raise InputError(
                    f"--workers {count}: sets the number of processes on this machine, so leave out --executor"
                )
            if not count.isdigit() or not int(count):
                raise InputError(f"--workers: must be a number of processes, 1 or more, got {count!r}")
            written[place : place + 1] = ["--executor", f"local:{count}"]
            break
    return written


_SHORT_TYPES = {int: "N", float: "X", Path: "PATH", str: "TEXT"}


def _without_types(params: list[Any]) -> list[Any]:
    """Show types in the help only where they are useful, and as short words. A switch or an
    argument has no type.
    """
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
        if param.metavar is None and param.param_type_name == "option":
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif getattr(param, "min", None) is not None or getattr(param, "max", None) is not None:
                param.metavar = "N"
            else:
                param.metavar = _SHORT_TYPES.get(param.type_descriptor.annotation)
    return params


def say(*lines: object, err: bool = False) -> None:
    """Print lines that may contain names from files. All output from commands except tables goes
    through this function.

    A line break inside one of the lines is replaced, because a name could otherwise start a new
    line.
    """
    for line in lines:
        typer.echo(on_one_line(str(line)), err=err)


class CommandGroup(typer.core.TyperGroup):
    """A group of commands from the core and from families. The error for a command from a missing
    family names that family.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            words, above = [args[0]], ctx
            while above.parent is not None:
                words, above = [above.info_name, *words], above.parent
            try:
                refuse_missing("commands", " ".join(words))
            except DagsimError as error:
                raise _ended(error, f"dagsim {error}", 2) from None
            path, commands = " ".join(["dagsim", *words[:-1]]), self.list_commands(ctx)
            near = nearest(args[0], commands if words[1:] else [*commands, *ALIASES])
            if args[0] in _EXPECTED and not words[1:]:
                near = f"; did you mean {_EXPECTED[args[0]]!r}?"
            raise _ended(InputError(), f"{path}: there is no command {args[0]!r}{near} ({path} --help)", 2)
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class App(typer.Typer):
    """A Typer app whose commands are instances of ``Command``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": CommandGroup} | options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            known_as = name or function.__name__
            other = next((f"\n\nAlias: dagsim {alias}" for alias, it in ALIASES.items() if it == known_as), "")
            text = _joined(function.__doc__ or "") + (other if self is app else "")
            return super(App, self).command(name, cls=Command, help=text, **options)(function)

        return register

    def with_command(self, word: str) -> App:
        """Return an app that has only the command or group called ``word``, or this app if it has
        none. Building the options of all commands takes tens of milliseconds longer than building
        those of one.
        """
        name, alone = ALIASES.get(word, word), copy(self)
        alone.registered_commands = [
            one for one in self.registered_commands if one.callback and (one.name or one.callback.__name__) == name
        ]
        alone.registered_groups = [one for one in self.registered_groups if one.name == name]
        return alone if alone.registered_commands or alone.registered_groups else self


def _joined(docstring: str) -> str:
    """Return a docstring with each paragraph on a single line, so that the help can wrap it to any
    width.
    """
    paragraphs = re.split(r"\n\s*\n", cleandoc(docstring))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


class _Guarded(CommandGroup):
    """A group of commands that reports errors as one plain line instead of a traceback.

    A command may only import code from outside dagsim after it has called ``configuring.trust``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = args[: args.index("--")] if "--" in args else args
        ctx.obj = Allowed([arg for arg in args if arg != ALLOW_CODE])
        # This option is accepted anywhere on the command line, because it applies to every command
        # that runs something.
        if ALLOW_CODE in options:
            ctx.obj.everything = True
            args = [*(arg for arg in options if arg != ALLOW_CODE), *args[len(options) :]]
        with _guarded():
            try:
                rest: list[str] = super().parse_args(ctx, args)
            except _UsageError as error:
                raise _told(error, self) from None
        return rest

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command: Any = super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))
        if command is not None:
            command.rich_help_panel = _PANELS.get(command.name)
        return command

    def list_commands(self, ctx: Any) -> list[str]:
        names: list[str] = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def invoke(self, ctx: Any) -> Any:
        try:
            with _guarded(), allow(ctx.obj):
                return super().invoke(ctx)
        except _UsageError as error:
            raise _told(error, self) from None


@contextmanager
def _guarded() -> Iterator[None]:
    """Convert an error in a command into an exit. Flush the command's output before the exit, and
    report an error if this fails.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except DagsimError as error:
        raise _ended(error, error.args, 2 if isinstance(error, InputError) else 1) from None
    except OutputError as error:
        if not error.unread:
            raise _ended(error, str(error), 1) from None
        # The reader closed the pipe, but the user should still learn where the results are.
        _tell_notes(error)
        raise typer.Exit(_UNREAD) from None
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        code = 2 if error.errno == errno.ENAMETOOLONG else 1
        raise _ended(error, f"{named}{error.strerror or error}", code) from None
    except UnicodeError as error:
        raise _ended(error, f"the output cannot be written: {error}", 1) from None
    except MemoryError as error:
        raise _ended(error, f"not enough memory{f' ({error})' if str(error) else ''}", 1) from None
    except KeyboardInterrupt as stop:
        _tell_notes(stop, "interrupted: ")
        raise typer.Exit(exit_code(stop)) from None


def _told(error: Any, group: Any) -> Exception:
    """Print a command-line error as one sentence, and return the exit that ends the command."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return error  # type: ignore[no-any-return]
    from dagsim.cli.command_errors import sentence

    return _ended(error, sentence(error, group, _all_commands), 2)


def _ended(error: Exception, text: str | tuple[str, ...], code: int) -> typer.Exit:
    """Print an error, with one line for each text, and return the exit that ends the command. If
    ``DAGSIM_DEBUG`` is 1, also print the traceback.
    """
    if os.environ.get("DAGSIM_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    first, *others = (text,) if isinstance(text, str) else text or ("",)
    long = re.compile(r"\S{400,}")
    for line in (f"error: {first}", *others):
        say(long.sub(lambda word: f"{word[0][:200]}...{word[0][-100:]}", line), err=True)
    _tell_notes(error)
    return typer.Exit(code)


def _tell_notes(error: BaseException, before: str = "") -> None:
    """Print the notes added to an error, which state what has been kept and how to continue
    (``Store.noting``)."""
    for note in getattr(error, "__notes__", ()):
        say(f"{before}{note}", err=True)


app = App(
    cls=_Guarded,
    help="Simulate DAG jobs on heterogeneous GPU clusters and compare schedulers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _all_commands() -> dict[str, Any]:
    """Return all commands by name, in the order of ``dagsim --help``."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {name: commands[name] for name in ORDER if name in commands}


_GC_THRESHOLDS = 200_000, 20, 10
"""Thresholds of the garbage collector. A run creates millions of objects but few reference cycles,
so a replay takes 10% longer with Python's default thresholds.
"""


def main() -> None:
    """Run the command line."""
    gc.set_threshold(*_GC_THRESHOLDS)
    # Fitting a goodput model (families/elastic) is so little work that several BLAS threads would only increase the CPU
    # time, by a factor of six.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    steady_streams()
    if fault := _unusable():
        raise SystemExit(_ended(InputError(), fault, 2).exit_code)
    # Add the current folder, so that --policy my_module:MyPolicy finds modules there. It comes
    # last, so that no module there hides an installed one.
    sys.path.append(str(Path.cwd()))
    # Exiting frees all memory anyway, and a final garbage collection would take 10% of a short
    # command's time.
    atexit.register(gc.freeze)
    with Stops() as stops:
        try:
            # the help shows this name even if the program was started as python -m dagsim
            app.with_command(next((arg for arg in sys.argv[1:] if arg[:1] != "-"), ""))(prog_name="dagsim")
        except SystemExit as end:
            if end.code == 128 + signal.SIGINT and stops.received is not None:
                raise SystemExit(128 + stops.received) from None
            raise


def _unusable() -> str:
    """Return a sentence about a fault in the working folder or in the encoding of the command line,
    or an empty text if there is none."""
    try:
        texts = (*sys.argv[1:], str(Path.cwd()))
    except FileNotFoundError:
        return "the working folder no longer exists; change to another one"
    wrong = next((text for text in texts if not is_text(text)), None)
    if wrong is None:
        return ""
    code = sys.getfilesystemencoding()
    return f"{wrong!a}: cannot be read as {code}, the encoding of this system; rename it, or set LC_ALL=C.UTF-8"


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
            help="Trust code outside dagsim that a run folder refers to (docs/security.md).",
        ),
    ] = False,
) -> None:
    pass
