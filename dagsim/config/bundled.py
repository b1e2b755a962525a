"""Find configurations and workloads by name, among the files in the current folder, the files that
ship with dagsim, and the presets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from dagsim.config import yaml
from dagsim.config.dumping import plain
from dagsim.errors import ConfigError, UnknownName, WorkloadError
from dagsim.files import is_there
from dagsim.spelling import choices, nearest, nearest_file
from dagsim.workload.presets import PRESETS, Preset
from dagsim.workload.sessions import Sessions
from dagsim.workload.windows import parse_measure

ShippedKind: TypeAlias = Literal["configs", "workloads"]


def shipped(kind: ShippedKind) -> dict[str, Path]:
    """Return the files in ``configs/`` or ``workloads/`` by name, without the file extension."""
    package = Path(__file__).parents[1]
    paths: dict[str, Path] = {}
    for folder in (Path(kind), package / kind, package.parent / kind):
        if folder.is_dir():
            for path in sorted(folder.glob("**/*.yaml" if kind == "configs" else "*.jsonl*")):
                name = path.relative_to(folder).as_posix().partition(".")[0]
                paths.setdefault(name, path)
    return paths


def shipped_folder(kind: ShippedKind, name: str) -> Path:
    """Return a folder below ``configs/`` or ``workloads/`` that ships with dagsim.

    Raises:
        UnknownName: There is no folder with that name.
    """
    package = Path(__file__).parents[1]
    for root in (package, package.parent):
        if (root / kind / name).is_dir():
            return root / kind / name
    raise UnknownName(f"no folder {name!r} ships with dagsim")


def find_config(text: str, workload: str = "the workload ") -> Path:
    """Return the file that ``--config`` names: a file, the configuration in a run folder, or a
    shipped file by name. ``workload`` is the text that an error message puts before the name of a
    similar workload.

    Raises:
        UnknownName: There is no such file or name.
        ConfigError: The folder contains no configuration.
    """
    path = Path(text)
    if is_there(path) and path.is_dir():
        if not (path / "config.yaml").is_file():
            raise ConfigError(
                f"{path}: this folder has no config.yaml; give a YAML file, a run folder, "
                "or a name from dagsim list configs"
            )
        return path / "config.yaml"
    if is_there(path):
        return path
    configs = shipped("configs")
    if text in configs:
        return configs[text]
    last_words = {name.rpartition("/")[2]: name for name in configs}
    hint = nearest(text, [*configs, *WORKLOADS]) or nearest(text, last_words)
    for word, name in last_words.items():
        hint = hint.replace(f"mean {word!r}", f"mean {name!r}")
    if any(f"{name!r}?" in hint for name in set(WORKLOADS) - set(configs)):
        hint = hint.replace("mean ", f"mean {workload}")
    hint = nearest_file(path, (".yaml", ".yml")) or hint
    raise UnknownName(f"{text}: no such file or configuration{hint} (dagsim list configs)")


def opening_of(path: Path) -> str:
    """Return the summary of a configuration file, which is the first comment that is not an
    instruction to a text editor.
    """
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if "yaml-language-server" not in line and line.strip("# "):
            return line.strip("# ")
    return ""


FITTED = Path(__file__).parents[1] / "workload" / "fitted"
"""The folder with the fitted workloads, which ``scripts/fit_workloads.py`` writes."""


class _Workloads(Mapping[str, Preset]):
    """Presets and fitted workloads by name. A fitted workload is read from its file only when it is
    used.
    """

    def __getitem__(self, name: str) -> Preset:
        return PRESETS[name] if name in PRESETS else _fit(FITTED / f"{name}.yaml")

    def __iter__(self) -> Iterator[str]:
        yield from PRESETS
        yield from sorted(path.stem for path in FITTED.glob("*.yaml"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == preset for preset in self)


@cache
def _fit(path: Path) -> Preset:
    if not path.is_file():
        raise KeyError(path.stem)
    workload = TypeAdapter(Sessions).validate_python(yaml.read_yaml(path).value)
    return Preset(opening_of(path), workload)


WORKLOADS: Mapping[str, Preset] = _Workloads()
"""Every preset by name (``dagsim list workloads``)."""


def spelled_out(workload: Any) -> Any:
    """Replace the name of a workload with the preset or file that has this name. Apply any keys
    that were given with the name.
    """
    if isinstance(workload, str):
        workload = {"preset": workload}
    if isinstance(workload, dict) and isinstance(workload.get("measure"), str):
        workload = workload | {"measure": parse_measure(workload["measure"])}
    if not isinstance(workload, dict) or "preset" not in workload:
        return workload
    name, changes = str(workload["preset"]), {key: value for key, value in workload.items() if key != "preset"}
    if name in WORKLOADS:
        return plain(WORKLOADS[name].workload) | changes
    path = Path(name) if is_there(name) else shipped("workloads").get(name)
    if path is not None:
        return {"kind": "trace", "path": str(path)} | changes
    if "." in name or "/" in name:  # it looks like a file name
        raise WorkloadError(f"{name}: no such file{nearest_file(Path(name))} (or a name from dagsim list workloads)")
    raise WorkloadError(f"no workload {name!r}{choices(name, WORKLOADS)} (dagsim list workloads)")
