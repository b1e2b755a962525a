"""Errors in a command line, phrased in the style of dagsim's own errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.cli.options import READ_KEYS
from dagsim.spelling import nearest

_MOST_OWNERS = 5
_SETTINGS = {
    "--gpus": "cluster.groups.0.count=4",
    "--nodes": "cluster.groups.0.count=4",
    "--jobs": "workload.count=200",
    "--load": "workload.load=0.7",
    "--preset": "workload=steady",
    "--engine": "engine=compiled",
    "--estimates": "estimates.kind=exact",
    "--gpu": "cluster.groups.0.gpu=H100",
}
"""Options that newcomers expect, each with a setting that has the same effect."""


class _Place(NamedTuple):
    """The command whose options or arguments are wrong."""

    command: Any
    words: str
    """The words after ``dagsim``, such as ``bench run``."""
    group: Any
    """The group of commands that was called."""
    all_commands: Callable[[], Mapping[str, Any]]
    """A function that returns all commands of dagsim by name, in the order of the help. ``group`` may contain only
    the command to run (``App.with_command``)."""

    @property
    def path(self) -> str:
        """The words of the command, as the user writes them."""
        return f"dagsim {self.words}".rstrip()

    @property
    def options(self) -> list[str]:
        """The long options of the command."""
        return [name for param in getattr(self.command, "params", ()) for name in param.opts if name.startswith("--")]


def sentence(error: Any, group: Any, all_commands: Callable[[], Mapping[str, Any]]) -> str:
    """Return the error as one sentence. ``group`` is the group of commands that was called, and
    ``all_commands`` returns all commands of dagsim by name, in the order of the help.
    """
    context = error.ctx
    words = context.command_path.partition(" ")[2] if context is not None else ""
    place = _Place(context.command if context is not None else None, words, group, all_commands)
    if phrase := _BY_TYPE.get(type(error).__name__):
        return phrase(error, place)
    text = error.format_message()
    for pattern, told in _BY_MESSAGE.items():
        if found := re.match(pattern, text):
            return told(found[1], place)
    return f"{place.path}: {text[:1].lower()}{text[1:]}"


def _no_such_option(error: Any, place: _Place) -> str:
    option = error.option_name
    hint = _owners(option, place) or _nearest_option(option, place.options)
    if "--read" in place.options and (key := option[2:].replace("-", "_")) in READ_KEYS:
        hint = f"; a reader takes it as --read {key}=VALUE"
    return f"{place.path} has no option {option}{hint} ({place.path} --help)"


def _missing_parameter(error: Any, place: _Place) -> str:
    about = (getattr(error.param, "help", None) or "").partition(". ")[0].removesuffix(".")
    what = f" ({about[:1].lower()}{about[1:]})".replace(" (repeatable)", "") if about else ""
    example = re.search(r"Example: (.*)", getattr(place.command, "help", None) or "")
    return f"{place.path} needs {_named(error)}{what}" + (f"; example: {example[1]}" if example else "")


def _bad_parameter(error: Any, place: _Place) -> str:
    from dagsim.sections import fault_in_words

    faults = error.__cause__.errors() if hasattr(error.__cause__, "errors") else ()
    message = fault_in_words(faults[0]) if faults else error.message
    if one_of := re.fullmatch(r"('.*') is not one of (.*)\.", message):
        names = one_of[2].replace("'", "")
        message = f"expected one of {names}, got {one_of[1]}"
    return f"{name}: {message}" if (name := _named(error)) and not message.startswith(name) else message


def _extra_argument(words: str, place: _Place) -> str:
    taken = getattr(place.command, "params", ())
    arguments = [of.metavar or of.name.upper() for of in taken if of.param_type_name == "argument"]
    if arguments:
        hint = "; a pattern with * may match several files" if Path(words.split()[0]).exists() else ""
        return f"{place.path} takes only {' and '.join(arguments)}, but also got {words!r}{hint}"
    if Path(words.split()[0], "manifest.json").is_file():
        again = "; --config RUN repeats a run" if "--config" in place.options else ""
        return f"{place.path} takes no argument {words!r}, which is a run folder (options take one folder each){again}"
    wanted = {"--policy": "a scheduler", "--config": "a configuration"}
    if set(words) & set("./"):
        wanted = {"--trace": "a log"} | wanted
    option = next((name for name in wanted if name in place.options), None)
    hint = f"; to choose {wanted[option]}, use {option} {words}" if option else ""
    return f"{place.path} takes no argument {words!r}{hint}"


def _missing_value(option: str, place: _Place) -> str:
    return f"{place.path}: {option} needs a value"


_BY_TYPE: Mapping[str, Callable[[Any, _Place], str]] = {
    "NoSuchOption": _no_such_option,
    "MissingParameter": _missing_parameter,
    "BadParameter": _bad_parameter,
}
"""For each error class of Typer, by name, the function that phrases the error."""
_BY_MESSAGE: Mapping[str, Callable[[str, _Place], str]] = {
    r"Got unexpected extra arguments? ?(?:\(s\) ?)?\((.*)\)": _extra_argument,
    r"Option '(.*)' requires": _missing_value,
}
"""For all other errors, the same by a pattern that matches Typer's message."""


def _named(error: Any) -> str:
    """Return the option or argument with the error, as the user would write it, or an empty text if
    it is unknown.
    """
    if error.param_hint is not None:
        hint = error.param_hint if isinstance(error.param_hint, str) else " / ".join(error.param_hint)
        return hint.strip("'")
    if error.param is None:
        return ""
    names = [name for name in error.param.opts if name.startswith("--")]
    return str(names[0] if names else error.param.metavar or error.param.name.upper())


def _has_option(command: Any, option: str) -> bool:
    return any(option in param.opts for param in command.params)


def _owners(option: str, place: _Place) -> str:
    """Return a hint that names other commands with this option: subcommands of this command or, if
    there are none, any commands.
    """
    inside = getattr(place.command, "commands", {}) if place.command is not place.group else {}
    owners = [f"{place.words} {name}" for name, other in inside.items() if _has_option(other, option)]
    if not owners:
        owners = [name for name, command in place.all_commands().items() if _has_option(command, option)]
    if not owners:
        return ""
    shown = ", ".join(f"dagsim {name}" for name in owners[:_MOST_OWNERS])
    return f"; it is an option of {shown}{' and others' * (len(owners) > _MOST_OWNERS)}"


def _nearest_option(option: str, options: list[str]) -> str:
    """Return a hint that names the option or the setting that was probably meant."""
    if option in _SETTINGS and "--set" in options:
        return f"; change the configuration, as in --set {_SETTINGS[option]}"
    near = nearest(option.strip("-"), [name.strip("-") for name in options if len(name) > 2])
    return near.replace("'", "'--", 1)
