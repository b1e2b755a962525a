"""Registries. They find objects by ``"name"``, ``"name[param=value]"`` or ``"module:attr"``, and
list all available names.

Built-in entries are literal tables (name, ``module:attr``, summary), so listing them imports
nothing. Other packages add entries through entry points.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from dagsim.errors import CodeNotAllowed, ConfigError, PluginError, UnknownName, one_line
from dagsim.family import Entry as Entry
from dagsim.family import all_names, family_entries, refuse_missing
from dagsim.own_code import allowed, attribute, is_own
from dagsim.specs import Spec
from dagsim.spelling import choices, nearest, nearest_file

T = TypeVar("T")
Factory = TypeVar("Factory", bound=Callable[..., object])


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


def _at_home(entry: Entry, home: str) -> Entry:
    if isinstance(entry.target, str) and entry.target.startswith("."):
        return replace(entry, target=home + entry.target)
    return entry


def _origin(plugin: EntryPoint) -> str:
    return f"from the package {plugin.dist.name}" if plugin.dist else plugin.value
