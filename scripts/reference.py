"""Reference pages from the code: options of commands, keys of configurations, metrics, parameters of policies and the
Python API. ``scripts/make_pages.py`` writes them into ``docs/reference``.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import typer
import yaml
from api_examples import ELSEWHERE, EXAMPLES
from command import markdown

from dagsim.cli import app
from dagsim.errors import DagsimError
from dagsim.families.ramp.policies import RAMP_POLICIES
from dagsim.families.spark.policies import SPARK_POLICIES
from dagsim.metrics import glossary
from dagsim.metrics.standings import lower_is_better
from dagsim.registry import Registry
from dagsim.sections import field_texts
from dagsim.systems.cluster.policies import POLICIES
from dagsim.workload.distributions import AnyDistribution

ROOT = Path(__file__).parent.parent
MODULES = ("dagsim", "dagsim.systems.seam", "dagsim.testing", "dagsim.model", "dagsim.model.log", "dagsim.errors")
"""Modules of the Python API: those of docs/reference/api.md."""


def options() -> Iterator[str]:
    """Yield all commands and their options."""
    root = typer.main.get_command(app)
    yield from _commands("dagsim", root)


def _commands(name: str, command: Any) -> Iterator[str]:
    for part, child in sorted(getattr(command, "commands", {}).items()):
        if not child.hidden:
            yield from _commands(f"{name} {part}", child)
    if hasattr(command, "commands"):
        return
    yield from (f"## `{name}`", "", inspect.cleandoc(command.help or "").replace("\b", ""), "")
    rows = [row for row in map(_parameter, command.params) if row is not None]
    if rows:
        yield from (*markdown(("option", "value", "meaning"), rows), "")


def _parameter(parameter: Any) -> tuple[str, str, str] | None:
    if getattr(parameter, "hidden", False):
        return None
    is_argument = parameter.param_type_name == "argument"
    name = (parameter.metavar or parameter.name).upper()
    names = [name] if is_argument else [*parameter.opts, *parameter.secondary_opts]
    value = "" if getattr(parameter, "is_bool_flag", False) else parameter.metavar or _value_of(parameter)
    meaning = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|").replace("\\[", "[")
    return ", ".join(f"`{name}`" for name in names), value and f"`{value}`".replace("|", ", "), meaning


def _value_of(parameter: Any) -> str:
    """Return the choices of an option without a metavar, or else the kind of value in capitals."""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(choice.value for choice in kind)
    if get_args(kind):
        return "|".join(map(str, get_args(kind)))
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def configuration() -> Iterator[str]:
    """Yield all keys of a configuration, from its JSON Schema."""
    schema = _schema()
    yield from _section("Top level", schema)
    parts = {_label(name): part for name, part in schema.get("$defs", {}).items() if part.get("properties")}
    for name, part in sorted({**_inline(schema), **parts}.items(), key=lambda pair: pair[0].lower()):
        yield from _section(f"`{name}`", part)


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((ROOT / "configs" / "dagsim.schema.json").read_text(encoding="utf-8"))
    return schema


def _inline(schema: Any) -> dict[str, Any]:
    """Return the parts of the schema that are described where they are used, by title."""
    found: dict[str, Any] = {}
    for key, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if key != "$defs" and isinstance(value, dict | list):
            if isinstance(value, dict) and "title" in value and value.get("type") == "object" and "properties" in value:
                found[value["title"]] = value
            found |= _inline(value)
    if isinstance(schema, dict):
        for value in schema.get("$defs", {}).values():
            found |= _inline(value)
    return found


def _label(name: str) -> str:
    """Shorten the name of a definition: ``a__b__c__Preemption`` is ``Preemption-c``."""
    *_, module, last = ["", *name.split("__")]
    return f"{last}-{module}" if module else last


def _section(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {title}", "")
    if title != "Top level" and schema.get("description"):
        yield from (" ".join(schema["description"].split("\n\n")[0].split()).replace("``", "`"), "")
    rows = []
    for key, part in schema["properties"].items():
        default = f"`{json.dumps(part['default'])}`" if "default" in part else ""
        short = default if len(default) <= 60 else ""
        meaning = " ".join(part.get("description", "").split())
        example = f"`{key}: {_example(key, part, schema['properties'])}`"
        cells = (f"`{key}`", _type(part), short, meaning.replace("``", "`"), example)
        rows.append([text.replace("|", "\\|") for text in cells])
    yield from (*markdown(("key", "type", "default", "meaning", "example"), rows), "")


@cache
def _shipped_mappings() -> tuple[dict[str, Any], ...]:
    """Every mapping in the configurations that ship, as written there."""
    files = [*sorted((ROOT / "configs").rglob("*.yaml")), *sorted((ROOT / "docs" / "examples").glob("*.yaml"))]
    found: list[dict[str, Any]] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            found.append(value)
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(part)

    for file in files:
        collect(yaml.safe_load(file.read_text(encoding="utf-8")))
    return tuple(found)


def _example(key: str, part: Mapping[str, Any], beside: Mapping[str, Any]) -> str:
    """Return a value of a key: one of a configuration that ships, else the default, else one of its type."""
    if "const" in part:
        return str(part["const"])
    for mapping in _shipped_mappings():
        fits = key in mapping and set(mapping) <= set(beside) and _is_allowed(mapping[key], part)
        if fits and mapping[key] not in (None, part.get("default")) and len(text := _flow(mapping[key])) <= 50:
            return text
    if (default := part.get("default")) not in (None, [], {}, "") and len(text := _flow(default)) <= 50:
        return text
    return _of_type(part)


def _is_allowed(value: Any, part: Mapping[str, Any]) -> bool:
    return "enum" not in part or value in part["enum"]


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("\n").removesuffix("\n...")


def _of_type(part: Mapping[str, Any]) -> str:
    """Return a value of the type of a key."""
    if "const" in part or "enum" in part:
        return str(part.get("const", part.get("enum", [""])[0]))
    for union in (part.get("anyOf"), part.get("oneOf")):
        if union:
            return _of_type(next((one for one in union if one.get("type") != "null"), union[0]))
    match part.get("type"):
        case "integer" | "number":
            least = part.get("minimum", part.get("exclusiveMinimum", 0))
            return str(max(1, int(least) + ("exclusiveMinimum" in part)))
        case "boolean":
            return "true"
        case "array":
            return f"[{_of_type(part['items'])}]" if "items" in part else "[]"
        case "object":
            return "{}"
        case "string":
            return "text"
    return "{...}"


_DISTRIBUTIONS = [f"[`{kind.__name__}`](#{kind.__name__.lower()})" for kind in get_args(get_args(AnyDistribution)[0])]


def _type(part: Mapping[str, Any]) -> str:
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        of = _schema()["$defs"][name]
        return f"[`{_label(name)}`](#{_label(name).lower()})" if of.get("properties") else _type(of)
    if "title" in part and part.get("properties"):
        return f"[`{part['title']}`](#{part['title'].lower()})"
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    union = part.get("anyOf") or part.get("oneOf")
    if union:
        names = list(dict.fromkeys(map(_type, union)))
        if len(others := [name for name in names if name not in _DISTRIBUTIONS]) <= len(names) - len(_DISTRIBUTIONS):
            names = ["[distribution](../workloads.md#arrivals-shapes-and-distributions)", *others]
        return " or ".join(names)
    kind = part.get("type", "any")
    if kind == "object" and isinstance(part.get("additionalProperties"), dict) and part["additionalProperties"]:
        return f"mapping of names to {_type(part['additionalProperties'])}"
    return f"list of {_type(part['items'])}" if kind == "array" and "items" in part else str(kind)


def python_api() -> Iterator[str]:
    """Yield the public Python API: signatures, docstrings and examples. An object that several modules
    export is described once.
    """
    described: set[int] = set()
    for module in map(import_module, MODULES):
        yield from (f"## `{module.__name__}`", "", _text(module.__doc__), "")
        for name in sorted(module.__all__, key=str.lower):
            value = getattr(module, name)
            if id(value) in described:
                yield from (f"### `{name}`", "", f"See [above](#{name.lower()}).", "")
            elif inspect.isclass(value) or inspect.isfunction(value):
                described.add(id(value))
                yield from _object(name, value)
            elif name in EXAMPLES:
                yield from (f"### `{name}`", "", "```python", EXAMPLES[name], "```", "")


def _object(name: str, value: Any) -> Iterator[str]:
    yield from (f"### `{name}`", "")
    if inspect.isfunction(value):
        yield from ("```python", f"{name}{_signature(value)}", "```", "")
    yield from (_text(value.__doc__), "")
    if name in EXAMPLES:
        yield from ("```python", EXAMPLES[name], "```", "")
    elif place := ELSEWHERE.get(name):
        yield from (f"Example: [{place.removeprefix('../')}]({place if '/' in place else f'#{place.lower()}'})", "")
    if not inspect.isclass(value):
        return
    told = " ".join(_text(value.__doc__).split())
    for field, text in field_texts(value).items() if is_dataclass(value) else ():
        if (line := " ".join(text.split()).replace("``", "`"))[1:] not in told and not field.startswith("_"):
            yield f"- `{field}`: {line}"
    for member, method in sorted(vars(value).items()):
        about = inspect.getdoc(method.fget if isinstance(method, property) else method)
        if not member.startswith("_") and about and (inspect.isfunction(method) or isinstance(method, property)):
            first = " ".join(about.split("\n\n")[0].split()).replace("``", "`")
            yield f"- `{member}`: {first}"
    yield ""


def _signature(value: Any) -> str:
    """Return a signature without quotes around annotations."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))


def _text(doc: str | None) -> str:
    """A docstring as Markdown: double backquotes become single ones, and ``Raises:`` keeps its lines."""
    text = re.sub(r"^(Raises|Args|Returns):\n", r"\1:\n\n", inspect.cleandoc(doc or ""), flags=re.MULTILINE)
    return text.replace("``", "`")


def excerpt(first: str, last: str) -> Iterator[str]:
    """Yield the lines of ``docs/examples/model_server.py`` from one that begins so until the next that begins so."""
    lines = (ROOT / "docs" / "examples" / "model_server.py").read_text(encoding="utf-8").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(first))
    end = next((number for number, line in enumerate(lines) if number > begin and line.startswith(last)), len(lines))
    yield from ("```text", *"\n".join(lines[begin:end]).strip("\n").splitlines(), "```")


def metrics() -> Iterator[str]:
    """Yield all metrics."""
    rows = ((f"`{it.name}`", it.unit, _better(it.name), it.meaning) for it in glossary())
    yield from markdown(
        ("metric", "unit", "better", "meaning"), ([cell.replace("|", "\\|") for cell in row] for row in rows)
    )


_NEUTRAL = {"jobs_arrived", "arrived", "horizon_s", "runs", "gpus", "gpu_hours", "mean_jobs_in_system"}


def _better(metric: str) -> str:
    """Return which values of a metric are better; empty if it only describes a run."""
    if metric == "unfinished" or metric.rpartition("].")[2] in _NEUTRAL:
        return ""
    return "lower" if lower_is_better(metric) else "higher"


def parameters() -> Iterator[str]:
    """Yield the parameters of all policies. What a parameter may be is what the policy says when it refuses a value."""
    titles: dict[str, Registry[Any]] = {"The GPU cluster": POLICIES, "Spark": SPARK_POLICIES, "RAMP": RAMP_POLICIES}
    for title, registry in titles.items():
        rows = [row for name in registry.names() for row in _parameters_of(registry, name)]
        yield from (f"## {title}", "", *markdown(("policy", "parameter", "values", "default", "effect"), rows), "")


_PROBES = ("-1000000000", "0", "0.5", "1000000000000", "nan", "no-such-value")


def _parameters_of(registry: Registry[Any], name: str) -> Iterator[tuple[str, ...]]:
    target: Any = registry.get(name)
    about = (inspect.getdoc(target) or "").partition("\nRaises:")[0]
    told = " ".join(re.sub(r"[,;.]?\n\n?- ", "; ", re.sub(r"[:.]?\n\n- ", ": ", about)).split())
    sentences = re.split(r"(?<=[.]) (?=[A-Z`])", told)
    for param in inspect.signature(target).parameters.values():
        if param.name == "placement" or param.kind not in (param.POSITIONAL_OR_KEYWORD, param.KEYWORD_ONLY):
            continue
        default = "required" if param.default is param.empty else _default(param.default)
        mentions = [part for part in sentences if re.search(rf"``{param.name}\b", part)]
        sentence = min(mentions, key=lambda part: not part.startswith(f"``{param.name}``"), default="")
        effect = sentence.removeprefix(f"``{param.name}`` is ")
        effect = (effect[:1].upper() + effect[1:]).replace("``", "`")
        cells = f"`{name}`", f"`{param.name}`", _allowed(registry, name, param), default, effect
        yield tuple(cell.replace("|", "\\|") for cell in cells)


def _default(value: object) -> str:
    if value in (None, (), ""):
        return "none"
    plain = str(value).lower() if isinstance(value, bool) else list(value) if isinstance(value, tuple) else value
    return f"`{plain}`"


def _allowed(registry: Registry[Any], name: str, param: inspect.Parameter) -> str:
    """Return the values of a parameter, in the words of the errors about others."""
    said: dict[str, None] = {}
    for probe in _PROBES:
        try:
            registry.create(f"{name}[{param.name}={probe}]")
        except DagsimError as error:
            found = re.search(rf"\b{param.name}(?: \S+)? must (?:be |lie )?(.*?)(?:, got .*|$)", str(error))
            said |= dict.fromkeys([found[1]] if found else [])
        except Exception:
            continue
    kinds = [what for what in said if what in _TYPES]
    ranges = [what for what in said if what not in _TYPES]
    if kinds[:1] == ["text"] and len(ranges) == 1 and (listed := _WORDS.fullmatch(ranges[0])):
        words = [f"`{word}`" for word in re.split(", | or ", listed[1])]
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]])) + (listed[2] or "")
    return ", ".join([*kinds[:1], *ranges]) or _TYPE_OF.get(str(param.annotation), "")


_TYPES = (
    "a number",
    "a whole number",
    "true or false",
    "text",
    "numbers in brackets ([1,2])",
    "a whole number or null",
)
_WORDS = re.compile(r"(?:one of )?([\w-]+(?:(?:, | or )[\w-]+)+)(;.*)?")
_TYPE_OF = {"bool": "true or false", "float": "a number", "int": "a whole number", "str": "text"}
