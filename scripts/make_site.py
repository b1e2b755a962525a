"""Build the documentation pages with MkDocs.

    python scripts/make_site.py [FOLDER]      # pages in FOLDER, by default build/site

The pages are the Markdown files of the repository in their own folders, so that links between them hold, and generated
ones: the options of every command, the keys of a configuration and the public Python API. The JSON Schema of
configurations is published beside them, for editors that complete YAML.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
import yaml
from command import markdown

from dagsim.cli import app

ROOT = Path(__file__).parent.parent
MODULES = ("dagsim", "dagsim.systems.seam", "dagsim.testing", "dagsim.model", "dagsim.model.log", "dagsim.errors")
"""Modules of the API page: those of docs/reference/api.md."""

_LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)")


def settings() -> dict[str, Any]:
    """The settings of MkDocs, with all pages below ``docs/`` in the navigation."""
    mkdocs: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = sections(mkdocs)
    listed = {name for names in pages.values() for name in names}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = str(path.relative_to(ROOT))
        if name not in listed:
            pages["Reference" if name.startswith("docs/reference/") else "Guides"].append(name)
    return mkdocs


def sections(mkdocs: Mapping[str, Any]) -> dict[str, list[str]]:
    """The pages of each section of the navigation. ``README.md`` stands before them."""
    return {title: names for section in mkdocs["nav"][1:] for title, names in section.items()}


def options() -> Iterator[str]:
    """Yield the page of all commands and their options."""
    yield from ("# Commands and options", "", "Made from the commands themselves: what `--help` prints.", "")
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
    names = [name.strip("[]")] if is_argument else [*parameter.opts, *parameter.secondary_opts]
    value = "" if getattr(parameter, "is_bool_flag", False) else str(parameter.metavar or "value").strip("[]")
    meaning = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|").replace("\\[", "[")
    return ", ".join(f"`{name}`" for name in names), value and f"`{value}`".replace("|", ", "), meaning


def configuration() -> Iterator[str]:
    """Yield the page of all keys of a configuration, from its JSON Schema."""
    schema = json.loads((ROOT / "configs" / "dagsim.schema.json").read_text(encoding="utf-8"))
    yield from ("# Keys of a configuration", "")
    yield "Made from [the JSON Schema](../dagsim.schema.json). Editors complete keys after this first line:"
    yield from ("", "```yaml", "# yaml-language-server: $schema=dagsim.schema.json", "```", "")
    yield from _section("Top level", schema)
    for name, part in sorted(schema.get("$defs", {}).items()):
        if part.get("properties"):
            yield from _section(f"`{name}`", part)


def _section(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {title}", "")
    if title != "Top level" and schema.get("description"):
        yield from (" ".join(schema["description"].split("\n\n")[0].split()), "")
    rows = []
    for key, part in schema["properties"].items():
        default = f"`{json.dumps(part['default'])}`" if "default" in part else ""
        short = default if len(default) <= 60 else ""
        meaning = " ".join(part.get("description", "").split())
        rows.append([text.replace("|", "\\|") for text in (f"`{key}`", _type(part), short, meaning)])
    yield from (*markdown(("key", "type", "default", "meaning"), rows), "")


def _type(part: Mapping[str, Any]) -> str:
    if "$ref" in part:
        return f"`{part['$ref'].rpartition('/')[2]}`"
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    union = part.get("anyOf") or part.get("oneOf")
    if union:
        return " or ".join(dict.fromkeys(map(_type, union)))
    kind = part.get("type", "any")
    return f"list of {_type(part['items'])}" if kind == "array" and "items" in part else str(kind)


def python_api() -> Iterator[str]:
    """Yield the page of the public Python API: signatures and docstrings."""
    yield from ("# Python API", "")
    yield from ("Made from docstrings. [The public API](../docs/reference/api.md) states the promise.", "")
    for module in map(import_module, MODULES):
        yield from (f"## `{module.__name__}`", "", _text(module.__doc__), "")
        for name in sorted(module.__all__, key=str.lower):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield from _object(name, value)


def _object(name: str, value: Any) -> Iterator[str]:
    yield from (f"### `{name}`", "")
    if inspect.isfunction(value):
        yield from ("```python", f"{name}{inspect.signature(value)}", "```", "")
    yield from (_text(value.__doc__), "")
    if not inspect.isclass(value):
        return
    for member, method in sorted(vars(value).items()):
        text = inspect.getdoc(method.fget if isinstance(method, property) else method)
        if not member.startswith("_") and text and (inspect.isfunction(method) or isinstance(method, property)):
            first = " ".join(text.split("\n\n")[0].split()).replace("``", "`")
            yield f"- `{member}`: {first}"
    yield ""


def _text(doc: str | None) -> str:
    """A docstring as Markdown: double backquotes become single ones, and ``Raises:`` keeps its lines."""
    text = re.sub(r"^(Raises|Args|Returns):\n", r"\1:\n\n", inspect.cleandoc(doc or ""), flags=re.MULTILINE)
    return text.replace("``", "`")


GENERATED = {"options": options, "configuration": configuration, "python": python_api}


def stage(folder: Path) -> Path:
    """Copy every page, and every file that a page links to, into ``folder``, and write the generated pages and
    ``mkdocs.yml``. Return the latter.
    """
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    mkdocs = settings()
    listed = [page for names in sections(mkdocs).values() for page in names if not page.startswith("generated/")]
    others = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "results").rglob("*.md"))]
    for name in dict.fromkeys(("README.md", *listed, *others)):
        _copy(ROOT / name, pages)
    for name, make in GENERATED.items():
        (pages / "generated").mkdir(exist_ok=True)
        (pages / "generated" / f"{name}.md").write_text("\n".join(make()) + "\n", encoding="utf-8")
    shutil.copy(ROOT / "configs" / "dagsim.schema.json", pages)
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(mkdocs, sort_keys=False), encoding="utf-8")
    return folder / "mkdocs.yml"


def _copy(page: Path, pages: Path) -> None:
    """Copy a page and the files (not folders) that it links to."""
    links = [page.parent / link for link in _LINK.findall(page.read_text(encoding="utf-8"))]
    for file in (page, *links):
        to = pages / file.resolve().relative_to(ROOT)
        if file.is_file() and not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)


def main(folder: str = "build/site") -> int:
    """Build the pages; 1 if MkDocs warns of anything."""
    file = stage(Path(folder).parent)
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(file)]
    return subprocess.run([*build, "--site-dir", str(Path(folder).resolve())], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
