"""The base classes for sections of a configuration, and for parts that are selected by name. In
such a part, the key ``kind`` names a class, and the other keys are the fields of that class.
Systems describe their settings with these base classes.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, ValidationInfo
from pydantic_core import core_schema

from dagsim.errors import ConfigError, UnknownName
from dagsim.family import missing_family, offered
from dagsim.own_code import attribute, name_of
from dagsim.registry import Registry

_LIMITS = {
    "greater_than_equal": ("ge", "{} or more"),
    "greater_than": ("gt", "above {}"),
    "less_than_equal": ("le", "{} or less"),
    "less_than": ("lt", "below {}"),
}
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "text", "list": "a list"}
_WORDS = {
    "int_parsing_size": "a whole number of fewer digits",
    "finite_number": "a finite number",
    "int_from_float": "a whole number",
    "tuple_type": "a list",
}


def fault_in_words(fault: Mapping[str, Any]) -> str:
    """Rewrite an error from pydantic in dagsim's own words, such as ``must be 1 or more, got 0``."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        bound = context[key]
        what = words.format(f"{int(bound):,}" if bound == int(bound) else bound)
    elif kind in ("literal_error", "enum"):
        what = context["expected"]
    elif kind == "value_error":
        return str(context["error"])
    else:
        stem = kind.removesuffix("_type").removesuffix("_parsing")
        if stem in ("int", "float") and (number := _as_number(fault)):
            return f"must be {_KINDS[stem]}{got(fault)}; write {number}"
        what = _WORDS.get(kind) or _KINDS.get(stem) or _after(fault["msg"], "should be ")
        if not what:
            message: str = fault["msg"]
            return f"{message[:1].lower()}{message[1:]}{got(fault)}"
    return f"must be {what}{got(fault)}"


def _as_number(fault: Mapping[str, Any]) -> str:
    """Return the number that a user meant by a text such as ``80%``, ``0,8`` or, for a key in
    seconds, ``2h``. Return an empty text if there is no such number.
    """
    typed, key = str(fault["input"]).strip(), str((fault.get("loc") or ("",))[-1])
    time = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)", typed) if key.endswith("_s") else None
    seconds = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
    if time or not fault["type"].startswith("float"):
        return f"{float(time[1]) * seconds[time[2]]:.10g} (seconds)" if time else ""
    if share := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", typed):
        return f"{float(share[1]) / 100:.10g}"
    if decimal := re.fullmatch(r"(\d+),(\d{1,2})", typed):
        return f"{decimal[1]}.{decimal[2]}"
    return ""


def _after(text: str, words: str) -> str:
    return text.partition(words)[2].partition(", unable to parse")[0].replace("valid ", "")


def got(fault: Mapping[str, Any]) -> str:
    """Return the words that show the wrong value, such as ``", got 'high'"``. A long value is
    shortened, and a number from the command line is shown without quotes.
    """
    given = fault["input"]
    text = given if fault["type"] in _LIMITS and isinstance(given, str) else repr(given)
    return f", got {text if len(text) <= 60 else text[:57] + '...'}"


DEFAULT_KIND = "x-default-kind"
"""The key in the JSON Schema for the default ``kind`` of a part."""


class Section(BaseModel):
    """A section of the configuration. It is immutable and does not accept unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    rare_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that are written only if they have a value. A dataclass may declare such keys, too."""

    def written_keys(self) -> list[str]:
        """Return the keys that are written to a file, in order."""
        unset = unset_keys(self)
        return [name for name in type(self).model_fields if name not in unset]


def unset_keys(part: Any) -> tuple[str, ...]:
    """Return the rare keys of a section or dataclass that have no value."""
    return tuple([name for name in getattr(part, "rare_keys", ()) if not getattr(part, name)])


def field_texts(cls: type[Any]) -> dict[str, str]:
    """Return the descriptions of the fields of a dataclass and its bases. A description is the
    string below the field in the source code or, without such a string, the sentences in the
    class's docstring that name the field. In a section, only strings below fields count.
    """
    if issubclass(cls, BaseModel):
        return _texts_below([base for base in cls.__mro__ if issubclass(base, BaseModel) and base is not BaseModel])
    sentences = re.split(r"(?<=\.)\s+(?=[A-Z`])|\n\n|\n(?=- )", (inspect.getdoc(cls) or "").partition("\nRaises:")[0])
    texts = {
        field.name: " ".join(
            " ".join(text.removeprefix("- ").split()) for text in sentences if f"``{field.name}``" in text
        )
        for field in fields(cls)
    }
    texts = {name: text.removeprefix(f"``{name}`` is ") for name, text in texts.items() if text and text[-1] != ":"}
    texts = {name: text[0].upper() + text[1:] for name, text in texts.items()}
    return texts | _texts_below([base for base in cls.__mro__ if is_dataclass(base)])


def _texts_below(classes: list[type]) -> dict[str, str]:
    """Return the strings below the fields of these classes. If several describe a field, the first
    class counts.
    """
    texts = dict[str, str]()
    for base in reversed(classes):
        (definition,) = ast.parse(dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = inspect.cleandoc(text)
    return texts


@dataclass(frozen=True)
class Foreign:
    """A placeholder for a part of a configuration whose class is outside dagsim and was not
    imported.
    """

    kind: str
    settings: Mapping[str, Any]
    """The part as written in the file, including ``kind``."""


class Registered:
    """The type of a configuration part whose class is named by ``kind``; without ``kind``,
    ``default`` names it: ``Annotated[Any, Registered(NETWORKS, "uniform")]``.

    The class is imported only if a configuration uses it. A user's own class (``module:attr`` or an
    entry point) must be a dataclass, but does not need a field ``kind``. If the validation context
    contains ``own: False``, a ``module:attr`` becomes a ``Foreign``.
    """

    def __init__(self, registry: Registry[Any], default: str | None = None) -> None:
        self.registry = registry
        self.default = default

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.with_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        classes = [self.registry.get(name) for name in self.registry.names()]
        union = [handler(TypeAdapter(class_).core_schema) for class_ in classes if isinstance(class_, type)]
        return {"anyOf": union, **({} if self.default is None else {DEFAULT_KIND: self.default})}

    def read(self, value: Any) -> Any:
        """Build the object that is described by a name, or by a mapping with its ``kind``.

        Raises:
            ConfigError: There is no such kind, or a key or value is wrong.
        """
        try:
            return self._object(dict(value) if isinstance(value, Mapping) else value, None)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            raise ConfigError(f"{self.registry.kind}: {where}: {fault_in_words(fault)}") from None

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        return self._object(value, info.context)

    def _object(self, value: Any, context: Any) -> Any:
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict):
            if is_dataclass(value) and not isinstance(value, type):
                return value
            raise ConfigError(f"must be a mapping with a kind, got {value!r}")
        kind = value.get("kind", self.default)
        if not isinstance(kind, str):
            raise ConfigError(f"kind is missing; allowed: {', '.join(self.registry.names())}")
        if self.registry.is_own(kind) and (context or {}).get("own") is False:
            return Foreign(kind, value)
        try:
            cls = self.registry.get(kind)
        except UnknownName as error:
            raise ConfigError(str(error)) from None
        if not isinstance(cls, type) or not is_dataclass(cls):
            raise ConfigError(f"kind {kind!r}: {cls!r} is not a dataclass, so it cannot be configured")
        own = any(field.name == "kind" and field.default == kind for field in fields(cls))
        settings = value if own else {key: part for key, part in value.items() if key != "kind"}
        return _adapter(cls).validate_python(settings, context=context)


class Later:
    """The type of a section whose class is imported only if the section is present:
    ``Annotated[Any, Later("module:Class")]``. In a ``TaggedUnion``, the class has a ``kind``.
    ``Later("train")`` represents the class that a family declares for the key ``train``.
    """

    def __init__(self, target: str, kind: str | None = None) -> None:
        self.target = target
        self.kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.with_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        cls = self._class()
        return handler(core_schema.none_schema() if cls is None else _adapter(cls).core_schema)

    def _class(self) -> Any:
        return attribute(self.target) if ":" in self.target else offered(self.target, "keys")

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        if (cls := self._class()) is None:
            raise ConfigError(f"the key {self.target!r} {missing_family('keys', self.target)}")
        return _adapter(cls).validate_python(value, context=info.context)


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def kind_of(value: Any) -> str | None:
    """Return the ``kind`` with which a configuration names a user's own class. Return None for a
    class from dagsim.
    """
    cls = type(value)
    return None if cls.__module__.split(".")[0] == "dagsim" else name_of(cls)
