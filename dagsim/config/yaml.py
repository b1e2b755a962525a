"""Read and write YAML. Unquoted words have the meaning that people expect. The position of each
value is recorded, so that faults are reported with a position and a remedy.

Unquoted words follow YAML 1.2 (``dagsim.specs``), a duplicate key is an error, and all keys in
mappings are strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import yaml

from dagsim.errors import ConfigError
from dagsim.files import why_unreadable
from dagsim.specs import scalar
from dagsim.text import is_text

KeyPath: TypeAlias = tuple[str | int, ...]
"""The path to a value: the mapping keys and list indices that lead to it from the top."""

_MOST_BYTES = 10_000_000
_MOST_VALUES = 100_000
"""Maximum number of values in a document. Each use of an alias counts all values in it, because
nine lines of aliases can expand to billions of values.
"""
_TEXT = "tag:yaml.org,2002:str"


class Option(str):
    """The position of a value that was given on the command line: an option (or a positional
    argument) as the user typed it, such as ``--policy sjf``.

    A position is a text, and its class states its kind, so that the kind does not depend on the
    wording. Other texts are positions in files.
    """

    name: str
    typed: str

    @classmethod
    def of(cls, name: str, typed: object) -> Self:
        """Return the position of what was typed after the name of an option."""
        place = cls(f"{name} {typed}")
        place.name, place.typed = name, str(typed)
        return place


class SweepPoint(str):
    """The position of a value at a point of a sweep, such as ``grid.yaml:3:3: over.seed = 2``."""

    axis: str
    """The position and the key of the axis."""

    @classmethod
    def of(cls, axis: str, label: str) -> Self:
        """Return the position of the value with this label."""
        place = cls(f"{axis} = {label}")
        place.axis = axis
        return place


class Setting(NamedTuple):
    """A key that was set on the command line. ``source`` is the option as the user typed it, and
    ``key`` has the same form as in ``--set``.
    """

    source: str
    key: str
    value: Any

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Parse ``a.b=value``, the text of ``--set``. The value is read as YAML.

        Raises:
            ConfigError: There is no ``=``, or the value is not YAML.
        """
        source = Option.of("--set", text)
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{source}: expected key=value, as in --set policy=sjf or --set cluster.groups.0.count=4")
        try:
            return cls(source, key.strip(), load(value, "value").value)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None


def as_listed(settings: Iterable[str | Setting]) -> list[str | Setting]:
    """Return settings as a list.

    Raises:
        ConfigError: They are one text, a mapping or something else instead of several texts.
    """
    if isinstance(settings, Iterable) and not isinstance(settings, str | Mapping):
        listed = list(settings)
        if all(isinstance(setting, str | Setting) for setting in listed):
            return listed
    raise ConfigError(f'settings: give a list of texts, such as ["policy=sjf"]; got {settings!r}')


@dataclass(slots=True)
class Document:
    """A YAML value, with the position of each part (``file:line:column`` or ``--set key=value``)."""

    value: Any
    source: str
    values: dict[KeyPath, str] = field(default_factory=dict)
    keys: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """Return the position of the value at ``path``. If it is unknown, return the position of
        the nearest part that contains the value.
        """
        below = (place for key, place in self.values.items() if key[: len(path)] == path)
        return _nearest(self.values, path) or next(below, self.source)

    def key_place(self, path: KeyPath) -> str:
        """Return the position of the key at the end of ``path``. If it is unknown, return the
        position of the nearest part that contains the key.
        """
        return self.keys.get(path) or self.place(path)

    def override(self, setting: str, default: Any = None) -> None:
        """Apply a setting of the form ``a.b=value``, as given to ``--set``. The value is read as YAML.

        Raises:
            ConfigError: There is no ``=``, the value is not YAML, or ``put`` raises the error.
        """
        source, key, value = Setting.parse(setting)
        self.put(key, value, source, default)

    def put(self, key: str, value: Any, source: str, default: Any = None) -> None:
        """Set the part at ``key`` (``a.b.0.c``). Messages give ``source`` as the position of the
        new value.

        Missing parts along the path are filled in from ``default``. A new ``kind`` removes the
        settings for the old one.

        Raises:
            ConfigError: A value along the path has no such part, or another option would lose its
                effect.
        """
        if self.value is None:
            self.value = {}
        if not isinstance(self.value, dict):
            kind = "a list" if isinstance(self.value, list) else repr(self.value)[:60]
            raise ConfigError(f"{self.place(())}: the file must be a mapping of keys to values, got {kind}")
        value = deepcopy(value)  # copied, because a later setting may change a part of it
        holder = self.value
        path: KeyPath = ()
        *way, last = key.split(".")
        for word, below in pairwise((*way, last)):
            step = _step(holder, word, path, source)
            path, default = (*path, step), _part(default, holder, word)
            if isinstance(holder, dict) and holder.get(word) is None:
                holder[word] = deepcopy(default) if default is not None else [] if below.isdigit() else {}
            holder = holder[step]
        path = (*path, step := _step(holder, last, path, source))
        new_kind = last == "kind" and isinstance(holder, dict) and holder.get("kind", value) != value
        self._check_no_option_lost(path, path[:-1] if new_kind else path, source)
        if new_kind:
            holder.clear()
        holder[step] = value
        for places in (self.values, self.keys):
            for key_below in [key_below for key_below in places if key_below[: len(path)] == path]:
                del places[key_below]
            places[path] = source

    def _check_no_option_lost(self, key: KeyPath, replaced: KeyPath, source: str) -> None:
        """Raise an error if setting ``key`` would remove a value that another option has set inside
        ``replaced``. An option may replace a value that ``--set`` or the same option has set for
        the same key.
        """
        own = source.name if isinstance(source, Option) else ""
        for path, place in self.values.items():
            if path[: len(replaced)] != replaced or not isinstance(place, Option) or not place.name.startswith("--"):
                continue
            if path != key or place.name not in ("--set", own):
                raise ConfigError(f"{source}: would undo {place}; change their order or leave one of them out")


def read_yaml(path: Path) -> Document:
    """Read the YAML document in the file ``path``.

    Raises:
        ConfigError: The file cannot be read, or ``load`` raises the error.
    """
    try:
        if path.is_fifo() and path.parts[:2] not in (("/", "dev"), ("/", "proc")):
            raise ConfigError(f"{path}: is a named pipe, not a file")
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(
                f"{path}: has more than {_MOST_BYTES:,} bytes, but a configuration is a text of a few pages"
            )
        with path.open(encoding="utf-8") as file:
            return load(file.read(_MOST_BYTES), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {why_unreadable(error)}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: is not UTF-8 text ({error.reason} at byte {error.start}); expected a text file in YAML, such as "
            "dagsim config show prints"
        ) from None


_UNCLOSED = (("flow sequence", "list", "[", "]"), ("flow mapping", "mapping", "{", "}"))
_PROBLEMS = (
    ("'\\t' that cannot start", "YAML cannot be indented with tabs; use spaces"),
    ("that cannot start any token", "a value cannot begin with {}; put the value in quotes, or delete this character"),
    (
        "mapping values are not allowed",
        "this colon is a second one in the same value; put a text that contains ': ' in quotes, and check that the "
        "line above ends with a colon and that this line is not indented too far",
    ),
    ("could not find expected ':'", "this line is not a 'key: value' pair; write a colon and a space after the key"),
    (
        "but found '<scalar>'",
        "the value ends before this text; put the whole value in quotes (in double quotes if it contains an "
        "apostrophe)",
    ),
    (
        "expected <block end>",
        "this line does not fit the lines above it; give all keys of a mapping the same indentation, begin each item "
        "of a list with '- ', and do not mix keys with items",
    ),
    ("undefined alias", "{} is used as an alias but not defined; put a text that begins with * in quotes"),
    (
        "expected a single document",
        "a second document begins with '---', but only one is allowed; delete this line or move the rest into "
        "another file",
    ),
    (
        "unknown escape character",
        "in double quotes, a backslash begins an escape such as \\n, but \\{} is not one; use single quotes",
    ),
    ("but found ']'", "this ']' closes a list that was not opened; delete it or put the value in quotes"),
    ("but found '}'", "this '}}' closes a mapping that was not opened; delete it or put the value in quotes"),
)
"""Parts of PyYAML's messages, and the same in plain words with what to do. ``{}`` stands for what
PyYAML puts in quotes."""


def _in_plain_words(context: str, problem: str, at: Any, begun: Any) -> tuple[Any, str]:
    """Return the mark to which the message refers, and the error in plain words. ``at`` is where
    the parser stopped, and ``begun`` is where the value that it was reading began."""
    if "quoted scalar" in context and "unexpected end" in problem:
        return begun, "the text that begins with a quote here is not closed; write the closing quote"
    for kind, what, first, last in _UNCLOSED:
        if kind in context and "expected" in problem:
            return begun, (
                f"this '{first}' begins a {what} that is not closed properly (problem at line {at.line + 1}, column "
                f"{at.column + 1}); a comma or the closing '{last}' is missing"
            )
    for part, words in _PROBLEMS:
        if part in f"{context}, {problem}":
            quoted = re.search(r"'(.*)'|\"(.*)\"", problem)
            return at, words.format(quoted[0].strip("'\"") if quoted else "")
    if "<stream end>" in problem:
        return at, "the text ends in the middle of a list or mapping; write the missing ']' or '}'"
    return at, f"{', '.join(filter(None, (context, problem)))}; put a text with special characters in quotes"


def load(text: str, source: str) -> Document:
    """Parse ``text``. ``source`` is its name in error messages.

    Raises:
        ConfigError: The text is not YAML (the message gives line and column), contains several
            documents or a tag, or has duplicate keys (the message lists all of them).
    """
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark, words = _in_plain_words(error.context or "", error.problem or "", at, error.context_mark or at)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{source}{place}: invalid YAML: {words}") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position].split("\n")
        raise ConfigError(
            f"{source}:{len(before)}:{len(before[-1]) + 1}: invalid YAML: the character U+{error.character:04X} "
            "is not allowed; delete it"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: invalid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply") from None
    document = Document(None, source)
    faults: list[str] = []
    if node is not None:
        document.value = _value(node, (), document, faults, ())
    if faults:
        raise ConfigError(*faults)
    return document


def dump(value: Any) -> str:
    """Return ``value`` (mappings, lists, strings, numbers, truth values, None) as YAML text from
    which ``load`` reads the same value.
    """
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


class _Dumper(yaml.SafeDumper):
    """A YAML dumper. It puts a text in quotes if ``scalar`` would read it as another type, or if
    YAML cannot represent it on one line.
    """

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)  # with False, list items are indented below their key


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if not text.isprintable() else None if scalar(text) is text else "'"
    return dumper.represent_scalar(_TEXT, text, style=style)


_Dumper.add_representer(str, _text)


def _value(node: yaml.Node, path: KeyPath, document: Document, faults: list[str], within: tuple[yaml.Node, ...]) -> Any:
    """Return the value of ``node``. Add the positions of its parts to ``document``, and any errors
    to ``faults``.
    """
    if len(document.values) >= _MOST_VALUES:
        raise ConfigError(f"{document.source}: more than {_MOST_VALUES:,} values (each use of an alias counts)")
    document.values[path] = place = _place(document.source, node)
    if node in within:
        faults.append(f"{place}: an alias refers to a value that contains the alias")
        return None
    inside = (*within, node)
    match node:
        case yaml.ScalarNode() if not is_text(node.value):
            faults.append(f"{place}: {node.value!a} contains an unpaired surrogate, which UTF-8 cannot encode")
            return None
        case yaml.ScalarNode() if node.tag == _TEXT:
            return scalar(node.value) if node.style is None else node.value
        case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
            return [_value(item, (*path, i), document, faults, inside) for i, item in enumerate(node.value)]
        case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
            return {
                key: _value(item, (*path, key), document, faults, inside)
                for key, item in _items(node, path, document, faults)
            }
    faults.append(f"{place}: tags such as {node.tag.replace('tag:yaml.org,2002:', '!!')!r} are not supported")
    return None


def _items(
    node: yaml.MappingNode, path: KeyPath, document: Document, faults: list[str]
) -> Iterator[tuple[str, yaml.Node]]:
    lines: dict[str, int] = {}
    for key, item in node.value:
        place = _place(document.source, key)
        if not isinstance(key, yaml.ScalarNode):
            faults.append(f"{place}: a key must be a plain word")
        elif not is_text(key.value):
            faults.append(f"{place}: key {key.value!a} contains an unpaired surrogate, which UTF-8 cannot encode")
        elif key.value in lines:
            faults.append(f"{place}: key {key.value!r} is given twice (first on line {lines[key.value]})")
        else:
            lines[key.value] = key.start_mark.line + 1
            document.keys[*path, key.value] = place
            yield key.value, item


def _place(source: str, node: yaml.Node) -> str:
    return f"{source}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _nearest(places: dict[KeyPath, str], path: KeyPath) -> str | None:
    return next((places[path[:end]] for end in range(len(path), -1, -1) if path[:end] in places), None)


def _part(default: Any, holder: Any, word: str) -> Any:
    """Return the part ``word`` of ``default``. Return None if there is no such part, or if
    ``holder`` has a different ``kind``.
    """
    if not isinstance(default, dict):
        return None
    if isinstance(holder, dict) and "kind" in holder and holder["kind"] != default.get("kind"):
        return None
    return default.get(word)


def _step(holder: Any, word: str, path: KeyPath, source: str) -> Any:
    """Return the key or index in ``holder`` to which ``word`` refers. ``path`` leads to ``holder``."""
    at = ".".join(map(str, path))
    match holder:
        case dict():
            return word
        case list() if word.isdigit() and int(word) < len(holder):
            return int(word)
        case list():
            if not holder:
                raise ConfigError(f"{source}: {at} is an empty list; set all of its entries, as in --set '{at}=[...]'")
            allowed = f"an index in 0..{len(holder) - 1}"
            raise ConfigError(f"{source}: {at} is a list and has no entry {word!r}; allowed: {allowed}")
    raise ConfigError(f"{source}: {at} is {holder!r}, which has no key {word!r}")
