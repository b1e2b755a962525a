"""Read and write YAML. Unquoted words have the meaning that people expect. The position of each
value is recorded, so that faults are reported with a position and a remedy.

Unquoted words follow YAML 1.2 (``dagsim.registry``), a duplicate key is an error, and all keys in
mappings are strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dagsim.errors import ConfigError
from dagsim.files import why_unreadable
from dagsim.registry import choices, nearest, scalar
from dagsim.sections import DEFAULT_KIND, fault_in_words, got
from dagsim.text import is_text

KeyPath: TypeAlias = tuple[str | int, ...]
"""The path to a value: the mapping keys and list indices that lead to it from the top."""

_MOST_BYTES = 10_000_000
_MOST_VALUES = 100_000
"""Maximum number of values in a document. Each use of an alias counts all values in it, because
nine lines of aliases can expand to billions of values.
"""
_TEXT = "tag:yaml.org,2002:str"


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
        source = f"--set {text}"
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
        ConfigError: They are one text or a mapping instead of several texts.
    """
    if isinstance(settings, str | Mapping):
        raise ConfigError(f'settings: give a list of texts, such as ["policy=sjf"]; got {settings!r}')
    return list(settings)


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
        own = source.partition(" ")[0]
        for path, place in self.values.items():
            option = place.partition(" ")[0]
            if path[: len(replaced)] != replaced or not option.startswith("--"):
                continue
            if path != key or option not in ("--set", own):
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


Schema = Mapping[str, Any]

_UNKNOWN_KEY = {"extra_forbidden", "unexpected_keyword_argument"}
_NO_MAPPING = {"dataclass_type", "dict_type", "model_type", "union_tag_not_found"}


def explain(error: ValidationError, document: Document, schema: Schema) -> Iterable[str]:
    """Explain a validation error with one line per fault: ``file:line:column: key.path: what (got
    ...); allowed``.

    ``schema`` is the JSON Schema against which the document was validated.
    """
    faults = (fault for fault in error.errors(include_url=False) if fault["type"] != "default_factory_not_called")
    return dict.fromkeys(_line(fault, document, schema) for fault in faults)


def _line(fault: ErrorDetails, document: Document, schema: Schema) -> str:
    path = _path(fault, document.value)
    place = document.place(path)
    match fault["type"]:
        case kind if kind in _UNKNOWN_KEY:
            place = document.key_place(path)
            allowed = _keys(schema, fault["loc"][:-1], document.value)
            homes = _homes(schema, str(path[-1]))
            near = f" here; did you mean {' or '.join(homes)}?" if homes else choices(str(path[-1]), allowed, both=True)
            what = f"there is no such key{near}"
        case "missing":
            what = f"is missing{_wanted(schema, fault['loc'])}"
        case kind if kind in _NO_MAPPING:
            keys = _keys(schema, fault["loc"], document.value)
            hint = f"; its keys are {', '.join(keys)}" if 0 < len(keys) < 20 else ""
            what = f"must be a mapping of keys to values{got(fault)}{hint}"
        case "union_tag_invalid":
            path = (*path, "kind")
            place = document.place(path)
            allowed = re.findall(r"'([^']*)'", fault["ctx"]["expected_tags"])
            tag = fault["ctx"]["tag"]
            what = f"there is no kind {tag!r}{choices(tag, allowed, both=True)}"
        case "literal_error":
            hint = nearest(str(fault["input"]), re.findall(r"'([^']*)'", fault["ctx"]["expected"]))
            what = f"{fault_in_words(fault)}{hint}"
        case "value_error":
            what, below = str(fault["ctx"]["error"]), getattr(fault["ctx"]["error"], "path", ())
            path = (*path, *below) if below else _named(what, path, document.value)
            place = document.place(path)
        case _:
            what = fault_in_words(fault)
    # remove a key from the message if the path already contains it
    while (said := what.partition(": "))[2] and said[0] in path:
        what = said[2]
    if path and what.startswith(f"{path[-1]} must "):
        what = what.removeprefix(f"{path[-1]} ")
    if place.startswith(("--", "NAME ")) and document.values.get(path) == place:
        return _of_option(place, path, what)
    key = ".".join(map(str, path)) or "the file"
    setting, equals, _ = place.partition(" = ")
    if equals and setting.endswith(f"over.{key}"):  # ``place`` is a point of a sweep, and already contains the key
        return f"{setting if fault['type'] in _UNKNOWN_KEY else place}: {what}"
    return f"{place}: {key}: {what}"


def _of_option(place: str, path: KeyPath, what: str) -> str:
    """Return the line that reports a fault in the value of an option. It names the option instead
    of the key that the option sets, unless the fault is in a key other than the one that ``--set``
    names.
    """
    option, _, typed = place.partition(" ")
    key = ".".join(map(str, path))
    what = re.sub(r"\b(\d+)\.0(?=$|[],;])", r"\1", what)
    if option in ("--set", "--read"):
        name, _, typed = typed.partition("=")
        option = f"{option} {name}" if option == "--read" or name == key else f"{place}: {key}"
    return f"{option}: {what}, got {typed}" if what.startswith("must") and ", got " not in what else f"{option}: {what}"


def _path(fault: ErrorDetails, value: Any) -> KeyPath:
    """Return the path to the fault in the document: pydantic's ``loc`` without the tags of unions that
    pydantic inserts.
    """
    path: list[str | int] = []
    missing = fault["type"] == "missing"
    for depth, key in enumerate(fault["loc"], 1):
        part = _child(value, key)
        if part is not _ABSENT:
            value = part
        elif not (missing and depth == len(fault["loc"])):
            continue
        path.append(key)
    return tuple(path)


_ABSENT = object()


def _child(value: Any, key: str | int) -> Any:
    match value:
        case dict():
            return value.get(key, _ABSENT)
        case list() if isinstance(key, int) and key < len(value):
            return value[key]
    return _ABSENT


def _named(message: str, path: KeyPath, value: Any) -> KeyPath:
    """Extend ``path`` by the faulty key below it. The message names either this key or its value."""
    for key in path:
        value = _child(value, key)
    if not isinstance(value, dict):
        return path
    words = re.findall(r"\w+", message)
    by_name = sorted((key for key in value if key in words), key=words.index)
    by_value = (key for key, part in value.items() if isinstance(part, str) and repr(part) in message)
    return (*path, *by_name[:1]) if by_name else (*path, *islice(by_value, 1))


def _keys(schema: Schema, loc: Iterable[str | int], value: Any) -> list[str]:
    """Return the keys that the schema allows at ``loc``. If ``value`` has a ``kind`` there, return
    only the keys for that kind.
    """
    node: Schema = schema
    for key in loc:
        node = _within(schema, node, key)
        part = _child(value, key)
        # pydantic's path also contains the kind of each union, which is not a key in the document
        value = value if part is _ABSENT else part
    branches = _branches(schema, node)
    kind = value.get("kind", _default_kind(schema, node)) if isinstance(value, dict) else None
    own = [branch for branch in branches if branch.get("properties", {}).get("kind", {}).get("const") == kind]
    names = {name for branch in own or branches for name in branch.get("properties", {})}
    return sorted(name for name in names if name[0] != "_")


def _wanted(schema: Schema, loc: Sequence[str | int]) -> str:
    """Return a hint for a missing key: its meaning, if it is known, and how to write the key."""
    node = schema
    for key in loc:
        node = _within(schema, node, key)
    meaning = node.get("description", "").partition(". ")[0].rstrip(".")
    form = {"string": "TEXT", "integer": "N", "number": "X", "array": "[...]"}.get(node.get("type", ""), "...")
    return (f" ({meaning[:1].lower()}{meaning[1:]})" if meaning else "") + f"; add {loc[-1]}: {form}"


_MOST_HOMES = 3
"""Maximum number of places that a message names for a key in the wrong place."""


def _homes(schema: Schema, key: str) -> list[str]:
    """Return the paths at which the configuration has this key. If there are many, return none.
    Items of lists are left out, because their paths contain an index.
    """
    paths: list[str] = []
    pending: list[tuple[Schema, tuple[str, ...], frozenset[int]]] = [(schema, (), frozenset())]
    while pending:
        node, path, above = pending.pop()
        for branch in _branches(schema, node):
            properties = branch.get("properties", {}) if id(branch) not in above else {}
            for name, part in properties.items():
                if name == key:
                    paths.append(".".join((*path, name)))
                pending.append((part, (*path, name), above | {id(branch)}))
    places = sorted(dict.fromkeys(paths), key=lambda place: (place.count("."), place))
    return places if len(places) <= _MOST_HOMES else []


def _default_kind(schema: Schema, node: Schema) -> str | None:
    """Return the default ``kind`` of a part, or None if it has none. ``Registered`` adds it to the
    schema beside the union.
    """
    nodes = [node, *(node.get("anyOf") or ())]
    return next((str(branch[DEFAULT_KIND]) for branch in nodes if DEFAULT_KIND in branch), None)


def _within(schema: Schema, node: Schema, key: str | int) -> Schema:
    """Return the part of the schema to which ``key`` leads: a property, the items of a list, or the
    branch of a union for this kind.
    """
    for branch in _branches(schema, node):
        properties = branch.get("properties", {})
        if key in properties:
            return properties[key]  # type: ignore[no-any-return]
        if isinstance(key, int) and "items" in branch:
            return branch["items"]  # type: ignore[no-any-return]
        if properties.get("kind", {}).get("const") == key:
            return branch
    return {}


def _branches(schema: Schema, node: Schema) -> list[Schema]:
    """Return the alternatives for a node in the schema, after resolving references."""
    if "$ref" in node:
        return _branches(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
    alternatives = node.get("anyOf") or node.get("oneOf")
    if alternatives:
        return [branch for alternative in alternatives for branch in _branches(schema, alternative)]
    return [node]
