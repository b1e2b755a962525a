"""Every workload by name: those of ``dagsim.workload.presets``, and fits to real traces, a YAML file each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from dagsim.config import yaml
from dagsim.config.bundled import opening_of
from dagsim.workload.presets import PRESETS, Preset
from dagsim.workload.sessions import Sessions

__all__ = ["FITTED", "WORKLOADS"]

FITTED = Path(__file__).parents[1] / "workload" / "fitted"
"""The folder of the fits; ``scripts/fit_workloads.py`` makes them."""


class _Workloads(Mapping[str, Preset]):
    """Presets by name; a fit is read when it is asked for."""

    def __getitem__(self, name: str) -> Preset:
        return PRESETS[name] if name in PRESETS else _fit(FITTED / f"{name}.yaml")

    def __iter__(self) -> Iterator[str]:
        yield from PRESETS
        yield from sorted(path.stem for path in FITTED.glob("*.yaml"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == each for each in self)


@cache
def _fit(path: Path) -> Preset:
    if not path.is_file():
        raise KeyError(path.stem)
    workload = TypeAdapter(Sessions).validate_python(yaml.read_yaml(path).value)
    return Preset(opening_of(path), workload)


WORKLOADS: Mapping[str, Preset] = _Workloads()
"""Every preset by name (``dagsim list workloads``)."""
