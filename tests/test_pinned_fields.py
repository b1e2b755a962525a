"""Every field of every configuration class takes and refuses the values that were recorded, in the words recorded."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.pinning import digest, plain

import dagsim
from dagsim.config.dumping import dump_config
from dagsim.config.schema import load_config
from dagsim.errors import DagsimError
from dagsim.families.ramp.graph import op_chain
from dagsim.model import Node, Task, TaskGraph, gpu_type
from dagsim.workload import distributions, sessions

CONFIGS = Path(__file__).parents[1] / "configs"
Pinned = Callable[[str, Any], None]
NUMBERS: tuple[Any, ...] = (-inf, -1, -0.5, 0, 1e-9, 0.25, 0.5, 1, 1.0, 1.5, 2, 3, 7, 24, 62, 63, 100, 101, 1023, 1024)
NUMBERS += (1025, 10_000, 100_000, 100_001, 1_000_000, 1_000_001, 10_000_000, 10_000_001, 1e300, inf, nan, True, None)
OTHERS: tuple[Any, ...] = (
    "",
    "x",
    "a b",
    "T4",
    (),
    (1,),
    (2, 1),
    (-1, 1),
    (1, 2),
    (0, 5, 3),
    {},
    {"x": 1},
    {"gpus": -1},
)
"""Values on both sides of the bounds that there are, and some of other types."""


TABLE = distributions.Quantiles(((0, 1), (1, 9)))
GRAPH = TaskGraph((Task("t", 1.0), Task("u", 2.0)))
RAMP_GRAPH = op_chain(2, rng=np.random.default_rng(1))
REQUIRED: dict[str, dict[str, Any]] = {
    "WarmStart": {"policy": "sjf"},
    "RewardConfig": {"terms": {"job_seconds": 1.0}},
    "Precision": {"within": 0.05},
    "Node": {"name": "n", "gpu": gpu_type("T4"), "gpus": 2},
    "Cluster": {"nodes": (Node("n", gpu_type("T4"), 2),)},
    "GpuType": {
        **{"name": "g", "fp32_tflops": 8.0, "memory_gb": 16.0, "bandwidth_gb_s": 100.0},
        **{"tdp_watts": 70.0, "idle_watts": 10.0},
    },
    "TaskGraph": {"tasks": GRAPH.tasks},
    "Task": {"name": "t", "work": 1.0, "gpus": 1},
    "Job": {"id": "j", "graph": GRAPH},
    "QueueNode": {"name": "q"},
    "NodePartition": {"name": "p"},
    "Qos": {"name": "q"},
    "Cable": {"name": "c", "bandwidth_gb_s": 1.0},
    "Route": {"source": "a", "destination": "b", "links": ("c",)},
    "TreeSwitch": {"name": "s"},
    "LlmTraining": {"params": 1e9, "layers": 8, "width": 64, "sequence": 128, "micro_batch": 2},
    "NodeFailures": {"mean_up_s": 10.0, "mean_down_s": 1.0},
    "SpotCapacity": {"mean_up_s": 10.0, "mean_down_s": 1.0},
    "EpochTraining": {"epochs": 10.0, "schedule": {0: 16}, "epoch_s": {"V100-16": {16: 10.0}}},
    "Maintenance": {"nodes": (1,), "start_s": 1.0, "end_s": 2.0},
    "Outages": {"windows": ((0, 1.0, 2.0),)},
    "Op": {"id": "1", "forward_s": 1.0, "backward_s": 2.0, "activation_bytes": 8.0, "parameter_bytes": 8.0},
    "RampJob": {"id": "j", "graph": RAMP_GRAPH},
    "RampWorkload": {"graphs": (RAMP_GRAPH,)},
    "ExecutorType": {"name": "e", "count": 1},
    "RecordedDurations": {"ms": (1.0, 2.0), "rough_ms": 1.5},
    "TraceFile": {"path": "x.csv"},
    "Swing": {"sigma": 1.0, "hours": 2.0},
    "Choice": {"values": (1.0, 2.0)},
    "Quantiles": {"points": ((0, 1), (1, 2))},
    "Part": {"weight": 1.0, "of": distributions.Constant(1.0)},
    "Mixture": {"parts": (distributions.Part(1.0, distributions.Constant(1.0)),)},
    "SessionKind": {"share": 1.0, "work": TABLE},
    "Sessions": {"kinds": (sessions.SessionKind(1.0, TABLE),)},
}
"""Fields without a default of classes that have such."""
LEFT_OUT = {"JobColumns", "FactColumns", "ThroughputTable", "ClusterScenario", "Waves", "SparkJob", "Explicit", "Tree"}
"""Classes of columns, and those whose tests are elsewhere."""


def classes() -> Iterator[type]:
    """All classes of the package that a configuration may hold, or that check their fields."""
    for module in pkgutil.walk_packages(dagsim.__path__, "dagsim."):
        if module.name.endswith(("__main__", ".pointers", ".torchrl_env")) or ".serve" in module.name:
            continue  # torchrl_env needs an extra that the tests do not install
        for value in vars(importlib.import_module(module.name)).values():
            if not isinstance(value, type) or value.__module__ != module.name or not is_dataclass(value):
                continue
            checks = hasattr(value, "__pydantic_config__") or hasattr(value, "__post_init__")
            if checks and value.__name__ not in LEFT_OUT and not value.__name__.startswith("_"):
                yield value


CLASSES = {f"{cls.__module__}.{cls.__name__}": cls for cls in classes()}


def outcome(make: Callable[[], Any]) -> str:
    """``taken``, the error in its words, or the kind of an error that is not dagsim's own."""
    try:
        make()
    except DagsimError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return type(error).__name__
    return "taken"


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_takes_and_refuses_the_values_that_were_recorded(name: str, pinned: Pinned) -> None:
    cls: Any = CLASSES[name]
    base = REQUIRED.get(cls.__name__, {})
    record: dict[str, str] = {"default": digest(repr(outcome(lambda: cls(**base))))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for field in fields(cls):
            if field.init and not field.name.startswith("_"):
                outcomes = [outcome(partial(cls, **{**base, field.name: value})) for value in (*NUMBERS, *OTHERS)]
                record[field.name] = f"{outcomes.count('taken')} taken, {digest(outcomes)}"
    pinned(name, record)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths of all single values of a configuration."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}.{key}" if path else key)
    else:
        yield path, value


DEFAULTS = {
    name: dict(leaves(yaml.safe_load(dump_config(load_config(name and CONFIGS / f"{name}.yaml", [])))))
    for name in (None, "ramp", "spark")
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_are_those_that_were_recorded(name: str | None, pinned: Pinned) -> None:
    pinned(f"defaults {name}", plain(DEFAULTS[name]))


@pytest.mark.whole
@pytest.mark.parametrize(("name", "path"), [(None, path) for path in DEFAULTS[None]])
def test_a_setting_takes_and_refuses_the_values_that_were_recorded(name: Any, path: str, pinned: Pinned) -> None:
    values = ("-1", "0", "0.5", "1", "2", "1.5", "1000001", "10000001", "nan", "inf", "x", "true", "null", "[]", "{}")
    outcomes = [outcome(partial(load_config, name, [f"{path}={value}"])) for value in values]
    pinned(f"--set {path}", f"{outcomes.count('taken')} taken, {digest(outcomes)}")
