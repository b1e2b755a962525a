"""Registries. They find objects by ``"name"``, ``"name[param=value]"`` or ``"module:attr"``, and
list all available names.

Built-in entries are literal tables (name, ``module:attr``, summary), so listing them imports
nothing. Other packages add entries through entry points.

``scalar`` interprets unquoted words in brackets and in configurations as values.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, cached_property, lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from dagsim.errors import CodeNotAllowed, ConfigError, PluginError, UnknownName, one_line
from dagsim.family import Entry as Entry
from dagsim.family import all_names, family_entries, refuse_missing
from dagsim.own_code import allowed, attribute, is_own
from dagsim.renamed import new_name

T = TypeVar("T")
Factory = TypeVar("Factory", bound=Callable[..., object])


class Spec(NamedTuple):
    """A name with its parameters in brackets."""

    name: str
    params: dict[str, object]

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Parse ``name[param=value,other=3]``.

        Values are YAML scalars, ``[1,2]`` is a tuple, and quoted text stays unchanged. Brackets can
        be nested: ``sticky[policy=sjf[strict=true]]``.

        Raises:
            ConfigError: Brackets or quotes do not match, a parameter has no ``=``, or a parameter
                is given twice.
        """
        name, bracket, rest = text.partition("[")
        if not name.strip() or (bracket and not rest.rstrip().endswith("]")):
            raise ConfigError(f"cannot read {text!r}: expected name or name[param=value,...]")
        params: dict[str, object] = {}
        for part in _split(rest.rstrip()[:-1], text):
            param, equals, value = part.partition("=")
            if not equals or not param.strip():
                raise ConfigError(f"cannot read {part!r} in {text!r}: expected param=value")
            if param.strip() in params:
                raise ConfigError(f"{text!r} gives {param.strip()!r} twice")
            params[param.strip()] = _value(value.strip(), text)
        return cls(name.strip(), params)

    def __str__(self) -> str:
        """Return a text from which ``parse`` creates the same spec."""
        parts = ",".join(f"{param}={_written(value)}" for param, value in self.params.items())
        return f"{self.name}[{parts}]" if parts else self.name


class Registry(Generic[T]):
    """A collection of all objects of one kind, each of which can be created by its name.

    ``group`` is the entry-point group for other packages, and ``listing`` is the command that lists
    the registry. Targets such as ``".orders:sjf"`` are relative to the package ``home``. ``method``
    names a method that every object of this kind must have. A user's own ``module:attr`` is accepted only if
    it has this method, or if it is a function and the class in its return annotation has this
    method. Without ``method``, users' own names are rejected. ``aliases`` maps further names to the
    entries that they stand for. Lists do not contain these names.
    """

    def __init__(
        self,
        kind: str,
        builtins: Iterable[Entry] = (),
        *,
        group: str | None = None,
        listing: str | None = None,
        home: str = "",
        method: str | None = None,
        aliases: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.aliases = aliases
        self.kind = kind
        self.method = method
        self.group = group
        self.listing = listing
        self._builtins = [_at_home(entry, home) for entry in builtins]

    @property
    def _own_group(self) -> str:
        return (self.group or "").removeprefix("dagsim.")

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        """The entries in the core, followed by those in the families."""
        added = [_at_home(entry, home) for home, entry in family_entries(self._own_group)]
        return {entry.name: entry for entry in (*self._builtins, *added)}

    def register(self, name: str, summary: str = "", tags: Iterable[str] = ()) -> Callable[[Factory], Factory]:
        """Decorate a class or function that creates a ``T``, so that it is found by ``name``. Raise
        ValueError if the name is already taken.
        """

        def add(factory: Factory) -> Factory:
            if name in self._entries:
                raise ValueError(f"a {self.kind} called {name!r} is already registered")
            self._entries[name] = Entry(name, factory, summary, tuple(tags))
            return factory

        return add

    def create(self, spec: str | Spec, **defaults: object) -> T:
        """Create the object that ``spec`` describes. ``defaults`` contains values for parameters
        that ``spec`` leaves out.

        Raises:
            UnknownName: There is no such name, module, attribute or parameter. The message suggests
                the nearest one.
            ConfigError: ``spec`` cannot be parsed, or a parameter is missing.
        """
        name, params = Spec.parse(spec) if isinstance(spec, str) else spec
        name = self.aliases.get(name, name)
        target: Any = self.get(name)
        if not callable(target):
            if params:
                raise ConfigError(f"{self.kind} {name!r} takes no parameters, got {', '.join(params)}")
            return target  # type: ignore[no-any-return]
        moved = self._entries[name].moved if name in self._entries else ()
        return target(**arguments_of(self.kind, name, target, params, defaults, moved))  # type: ignore[no-any-return]

    def get(self, name: str, *, own: bool = True) -> object:
        """Return the factory called ``name``. It is a class or a function. For a user's own
        ``module:attr``, it may be any object.

        With ``own=False``, code outside dagsim is rejected unless it is an entry point. Use this
        for names in data files.

        Raises:
            UnknownName: There is no such name, module or attribute.
            CodeNotAllowed: ``name`` is code outside dagsim that may not be imported here.
            ConfigError: The object is not of the expected kind.
        """
        if self.is_own(name):
            if not own:
                raise CodeNotAllowed(
                    f"{self.kind} {name!r}: a data file may only name parts that come with "
                    f"dagsim{f' ({self.listing})' if self.listing else ''}; see docs/security.md"
                )
            return self._own(name)
        if ":" in name:
            return self._import(name)
        if name in self._entries:
            target = self._entries[name].target
            return attribute(target) if isinstance(target, str) else target
        plugin = self._plugins().get(name)
        if plugin is None:
            raise self._unknown(name)
        try:
            return plugin.load()
        except Exception as error:
            raise self._broken(name, _origin(plugin), error) from error

    def is_own(self, name: str) -> bool:
        """Return True if ``name`` is a ``module:attr`` outside dagsim that no installed package
        registers as an entry point.
        """
        return is_own(name) and all(plugin.value != name for plugin in self._plugins().values())

    def __contains__(self, name: object) -> bool:
        """Return True if there is an entry called ``name``."""
        return name in self._entries or name in self._plugins()

    def names(self) -> tuple[str, ...]:
        """Return all names: first the built-in names in the order of the table, then registered
        names, then the names from other packages.
        """
        return tuple(entry.name for entry in self.describe())

    def entry_of(self, spec: str) -> Entry | None:
        """Return the entry that ``spec`` names, or None if it names no entry.

        Raises:
            ConfigError: ``spec`` cannot be parsed.
        """
        name = Spec.parse(spec).name
        return next((entry for entry in self.describe() if entry.name == name), None)

    def describe(self) -> tuple[Entry, ...]:
        """Return all entries. If the registry has an entry-point group, this searches the installed
        packages.
        """
        plugins = self._plugins().values()
        return (*self._entries.values(), *(Entry(plugin.name, plugin.value, _origin(plugin)) for plugin in plugins))

    def _plugins(self) -> dict[str, EntryPoint]:
        """Return the entry points of other packages. An entry point never replaces a built-in name."""
        if self.group is None:
            return {}
        plugins = _of_group(tuple(sys.path), self.group)
        return {plugin.name: plugin for plugin in plugins if plugin.name not in self._entries}

    def _own(self, name: str) -> object:
        """Import a user's own object, if this is allowed. Check that it is of the right kind before
        anything calls it.
        """
        names = allowed()
        if names is not None:
            names.check(self.kind, name)
        value = self._import(name)
        if self.method is None or not _has(value, self.method):
            wanted = "no such name is accepted" if self.method is None else f"it has no method {self.method}()"
            hint = "" if isinstance(value, type) or not callable(value) else ", and its annotation promises none"
            raise ConfigError(f"{name!r} is not a {self.kind}: {wanted}{hint}")
        return value

    def _import(self, name: str) -> object:
        try:
            return attribute(name)
        except UnknownName as error:
            hint = nearest_file(Path(name.rpartition(":")[0])) if ".py:" in name else ""
            raise UnknownName(f"{self.kind} {name!r}: {error}{hint}") from None
        except ModuleNotFoundError as error:
            module = name.partition(":")[0]
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                # The module exists, but an import inside it failed.
                raise self._broken(name, "", error) from error
            raise UnknownName(
                f"{self.kind} {name!r}: there is no module {error.name!r} in this folder or on the Python path"
            ) from None
        except AttributeError as error:
            raise UnknownName(f"{self.kind} {name!r}: {error}") from None
        except Exception as error:
            if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
                raise UnknownName(
                    f"cannot read {self.kind} {name!r}: expected a name, module:attr or path/to/file.py:attr"
                ) from None
            raise self._broken(name, "", error) from error

    def _broken(self, name: str, origin: str, error: Exception) -> PluginError:
        """Return the error for code from a user or another package that cannot be imported."""
        text = f"{type(error).__name__}: {one_line(error)}"
        return PluginError(f"{self.kind} {name!r}{f' ({origin})' if origin else ''} cannot be imported: {text}")

    def _unknown(self, name: str) -> UnknownName:
        refuse_missing(self._own_group, name)
        names = (*self.names(), *self.aliases)
        # if ``name`` is a family such as slurm, list the entries that the family adds to this
        # registry
        of_family = all_names().get(name, {}).get(self._own_group, ())
        near = f"; did you mean {' or '.join(map(repr, of_family))}?" if of_family else choices(name, names)
        word = re.compile(rf"\b{re.escape(name)}", re.IGNORECASE)
        about = [entry.name for entry in self.describe() if len(name) > 3 and word.search(entry.summary)][:3]
        if about and "did you mean" not in near and "it is now" not in near:
            near = f"; the descriptions of these contain this word: {', '.join(about)}"
        return UnknownName(f"unknown {self.kind} {name!r}{near}" + (f" ({self.listing})" if self.listing else ""))


def arguments_of(
    kind: str,
    name: str,
    target: Callable[..., object],
    params: dict[str, object],
    defaults: dict[str, object] | None = None,
    moved: Iterable[tuple[str, str]] = (),
) -> dict[str, object]:
    """Return the arguments for calling ``target``: ``params`` as given by a user, and ``defaults``
    for parameters that the user left out. ``kind`` and ``name`` describe the object in errors, and
    ``moved`` lists former parameters with their successors.

    Raises:
        UnknownName: ``target`` has no such parameter.
        ConfigError: A parameter is missing, or its value has the wrong type.
    """
    try:
        parameters = _of_class(target) if isinstance(target, type) else _parameters(target)
    except (TypeError, ValueError):
        raise ConfigError(f"{kind} {name!r}: {target!r} is not a class or function that creates one") from None
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for param in params:
            if param not in named:
                if successor := dict(moved).get(param):
                    raise UnknownName(f"{kind} {name!r} no longer has {param!r}; use {successor}")
                allowed = f"allowed: {', '.join(named)}" if named else "it takes none"
                raise UnknownName(f"{kind} {name!r} has no parameter {param!r}{nearest(param, named, allowed)}")
    for param, value in params.items():
        kinds = _kinds(named[param].annotation) if param in named else ()
        if kinds and not any(_KINDS[one](value) for one in kinds):
            wanted = " or ".join(_SAID[one] for one in kinds)
            raise ConfigError(f"{kind} {name!r}: {param} must be {wanted}, got {value!r}")
    values = {key: value for key, value in (defaults or {}).items() if key in named} | params
    missing = [p.name for p in named.values() if p.default is p.empty and p.name not in values]
    if missing:
        example = ",".join(f"{param}=..." for param in missing)
        raise ConfigError(f"{kind} {name!r} needs {', '.join(missing)}: {name}[{example}]")
    return values


@lru_cache(1)
def _installed(path: tuple[str, ...]) -> EntryPoints:
    """Return the entry points of all packages on ``path``, which is ``sys.path``. Every registry needs
    them, and searching the packages takes milliseconds.
    """
    return entry_points()  # type: ignore[return-value]  # Python 3.11 has another class with the same ``select``


@cache
def _of_group(path: tuple[str, ...], group: str) -> list[EntryPoint]:
    """Return the entry points of a group in order of their names."""
    return sorted(_installed(path).select(group=group), key=lambda plugin: plugin.name)


def _has(value: object, method: str) -> bool:
    """Return True if ``value`` is an object or a class with this method, or a function whose return
    annotation is such a class.
    """
    if isinstance(value, type) or not inspect.isroutine(value):
        cls = value if isinstance(value, type) else type(value)
        # getattr would find ``__call__`` on every class, because the metaclass defines it
        return any(callable(vars(base).get(method)) for base in cls.__mro__)
    try:
        promised = inspect.signature(value, eval_str=True).return_annotation
    except (NameError, TypeError, ValueError):
        return False
    promised = getattr(promised, "__origin__", None) or promised
    return isinstance(promised, type) and _has(promised, method)


def _parameters(target: Callable[..., object]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(target).parameters.values())


_of_class = lru_cache(1024)(_parameters)
"""The parameters of a class. They are cached, because every training episode creates a reward and a
placement.
"""


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KINDS: dict[str, Callable[[object], bool]] = {
    "float": _number,
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "None": lambda value: value is None,
    "tuple[float, ...]": lambda value: isinstance(value, tuple) and all(map(_number, value)),
}
"""The annotations for which parameter values are checked, each with the check."""

_SAID = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "str": "text",
    "None": "null",
    "tuple[float, ...]": "numbers in brackets ([1,2])",
}


def _kinds(annotation: object) -> tuple[str, ...]:
    """Return those of the types in ``_KINDS`` that an annotation allows. The result is empty if the
    annotation also allows other types.
    """
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    parts = tuple(part.strip() for part in text.split("|"))
    return parts if all(part in _KINDS for part in parts) else ()


def nearest(name: str, names: Iterable[str], then: str = "") -> str:
    """Suggest the most similar name, as in ``"; did you mean 'heft'?"``. The result is empty if no
    name is similar. Otherwise, ``then`` is the rest of the message, which is appended with the
    right punctuation.

    For an old name, suggest the name that has replaced it. Case is ignored, and a name that starts
    with ``name`` counts as similar.
    """
    near = _nearest(name, list(names))
    return near + (" " if near.endswith("?") else "; ") + then if then else near


def _nearest(name: str, names: list[str]) -> str:
    if (new := new_name(name, names)) is not None:
        return f"; it is now called {new!r}"
    folded, by_folded = name.casefold(), {known.casefold(): known for known in reversed(names)}
    # Names that share a few letters in order are not similar if more than half of the letters differ.
    close = [known for known in get_close_matches(folded, by_folded, n=3) if _edits(folded, known) <= len(name) / 2]
    close += [known for known in by_folded if _edits(folded, known) <= _FEW_EDITS * len(known)] if len(name) < 5 else []
    close = sorted(close, key=lambda known: _edits(folded, known))
    close = close or [longer for longer in reversed(by_folded) if len(name) > 2 and longer.startswith(folded)]
    return f"; did you mean {by_folded[close[0]]!r}?" if close else ""


_FEW_EDITS = 0.34
"""Maximum edit distance at which a known name is suggested for a typed name of fewer than five
letters, as a fraction of the known name's length."""


def _edits(typed: str, name: str) -> float:
    """Return the edit distance between two names. Swapping two letters or mistyping a digit counts
    as half an edit, because a user who types a wrong digit usually has the rest of the name right.
    """
    older: list[float] = []
    last: list[float] = []
    row: list[float] = [float(place) for place in range(len(name) + 1)]
    for i, letter in enumerate(typed):
        older, last, row = last, row, [i + 1.0]
        for j, other in enumerate(name):
            changed = 0.0 if letter == other else 0.5 if letter.isdigit() and other.isdigit() else 1.0
            least = min(last[j] + changed, last[j + 1] + 1, row[j] + 1)
            if i and j and letter == name[j - 1] and typed[i - 1] == other:
                least = min(least, older[j - 1] + 0.5)
            row.append(least)
    return row[-1]


def nearest_file(path: Path, ends: str | tuple[str, ...] = "") -> str:
    """Suggest the file or folder whose name is most similar to that of a missing one in the same
    folder, in the words of ``nearest``. With ``ends`` (file extensions), only names with one of
    these extensions are considered, and the extensions are not compared.
    """
    try:
        beside = sorted(file.name for file in islice(path.parent.iterdir(), _MOST_FILES) if file.name.endswith(ends))
    except (OSError, ValueError):
        return ""
    by_name = {Path(name).stem if ends else name: name for name in reversed(beside)}
    near = re.search(r"'(.*)'", nearest(path.stem if ends else path.name, by_name))
    return f"; did you mean {str(path.parent / by_name[near[1]])!r}?" if near else ""


_MOST_FILES = 1000
"""Maximum number of files in which ``nearest_file`` looks for a similar name."""

_MOST_NAMED = 16
"""Maximum number of names that a message lists."""


def check_arguments(call: str, given: Iterable[str], *allowed: str) -> None:
    """Check the names of keyword arguments that are passed on.

    Raises:
        UnknownName: ``call`` has no such argument.
    """
    for name in given:
        if name not in allowed:
            raise UnknownName(f"{call}: no argument {name!r}{choices(name, allowed)}")


def _by_words(name: str, names: list[str]) -> str:
    """If ``name`` consists of several words and each of them is the beginning of a known name,
    suggest these known names.
    """
    begun = [[known for known in names if known.casefold().startswith(word)] for word in name.casefold().split("_")]
    if len(begun) < 2 or not all(begun) or any(_edits(name.casefold(), known.casefold()) <= 2 for known in names):
        return ""
    *first, last = dict.fromkeys(chain.from_iterable(begun))
    return f"; did you mean {', '.join(map(repr, first))} or {last!r}?" if 1 <= len(first) <= 2 else ""


def choices(name: str, names: Iterable[str], *, both: bool = False) -> str:
    """Return a hint for a message about an unknown name: the most similar name or, if none is
    similar, all names. If there are too many names to list, the hint gives up to three names that
    are slightly similar. With ``both``, the most similar name is followed by all names if there are
    few.
    """
    names = list(names)
    near = _by_words(name, names) or nearest(name, names)
    if len(names) <= _MOST_NAMED and (both or not near):
        then = f"allowed: {', '.join(names)}" if names else ""
        return f"{near}{' ' if near.endswith('?') else '; '}{then}" if then else near
    if near:
        return near
    folded = {known.casefold(): known for known in reversed(names)}
    far = [folded[one] for one in get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
    return f"; similar names: {', '.join(far)}" if far else f"; none of the {len(names)} names is similar"


def _at_home(entry: Entry, home: str) -> Entry:
    if isinstance(entry.target, str) and entry.target.startswith("."):
        return replace(entry, target=home + entry.target)
    return entry


def _origin(plugin: EntryPoint) -> str:
    return f"from the package {plugin.dist.name}" if plugin.dist else plugin.value


def _split(text: str, whole: str) -> Iterator[str]:
    """Split at commas, except inside brackets or quotes."""
    part, depth, quote = "", 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "," and not depth:
            yield part.strip()
            part = ""
            continue
        else:
            depth += (letter == "[") - (letter == "]")
        if depth < 0:
            break
        part += letter
    if depth or quote:
        raise ConfigError(f"cannot read {whole!r}: a bracket or quote does not match")
    if part.strip():
        yield part.strip()


def _value(text: str, whole: str) -> object:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return tuple(_value(part, whole) for part in _split(text[1:-1], whole))
    return scalar(text)


def _written(value: object) -> str:
    """Return the text from which ``_value`` reads this value."""
    if isinstance(value, tuple):
        return f"[{','.join(map(_written, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    text = str(value)
    plain = not isinstance(value, str) or (re.fullmatch(r"[\w.-]+", text) and scalar(text) == text)
    return text if plain else f"'{text}'" if '"' in text else f'"{text}"'


Scalar: TypeAlias = bool | int | float | str | None

_WORDS: dict[str, Scalar] = {"": None, "~": None}
for _word, _meaning in (("null", None), ("true", True), ("false", False)):
    _WORDS |= dict.fromkeys((_word, _word.capitalize(), _word.upper()), _meaning)

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INF = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NAN = re.compile(r"\.(nan|NaN|NAN)")
_MOST_DIGITS = 1000
"""Maximum length of a word that is read as a number. Python cannot print integers with more than
4,300 digits, so an error message could not show a longer one.
"""


def scalar(text: str) -> Scalar:
    """Return the value of an unquoted word: None, a truth value, a number, or the text itself (such
    as ``off``).

    This follows the core schema of YAML 1.2. YAML 1.1, which PyYAML implements, reads ``3e-4`` as
    text and ``off`` as false, which is not what people mean.
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _MOST_DIGITS:
        return text
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text)
    if infinite := _INF.fullmatch(text):
        return float(infinite[1] + "inf")
    if _NAN.fullmatch(text):
        return float("nan")
    return text
