"""A toy of each kind that ARCHITECTURE lists, in a package of its own, found by its entry points."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dagsim
from dagsim.own_code import attribute
from dagsim.registry import Registry

ROOT = Path(dagsim.__file__).parent
TABLE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Where a new kind of thing goes")[2]

REGISTRIES = {
    "dagsim.systems": "dagsim.systems:SYSTEMS",
    "dagsim.policies": "dagsim.systems.cluster.policies:POLICIES",
    "dagsim.placements": "dagsim.systems.cluster.policies:PLACEMENT_RULES",
    "dagsim.spark_policies": "dagsim.families.spark.policies:SPARK_POLICIES",
    "dagsim.ramp_policies": "dagsim.families.ramp.policies:RAMP_POLICIES",
    "dagsim.runtimes": "dagsim.systems.cluster.models:RUNTIMES",
    "dagsim.setups": "dagsim.systems.cluster.models:SETUPS",
    "dagsim.failures": "dagsim.systems.cluster.models:FAILURE_MODELS",
    "dagsim.networks": "dagsim.systems.cluster.network:NETWORKS",
    "dagsim.metrics": "dagsim.metrics.own:METRICS",
    "dagsim.readers": "dagsim.traces:READERS",
    "dagsim.codecs": "dagsim.systems.cluster.learnable:CODECS",
    "dagsim.spark_codecs": "dagsim.families.spark.codecs:SPARK_CODECS",
    "dagsim.ramp_codecs": "dagsim.families.ramp.codecs:RAMP_CODECS",
    "dagsim.rewards": "dagsim.systems.cluster.learnable:TERMS",
    "dagsim.spark_rewards": "dagsim.families.spark.rewards:SPARK_TERMS",
    "dagsim.ramp_rewards": "dagsim.families.ramp.rewards:RAMP_TERMS",
    "dagsim.nets": "dagsim.families.learning.nets:NETS",
    "dagsim.algorithms": "dagsim.families.learning.algorithms:ALGORITHMS",
    "dagsim.advantages": "dagsim.families.learning.advantages:ADVANTAGES",
    "dagsim.executors": "dagsim.experiment.executors:EXECUTORS",
}

MODULE = """
from dataclasses import dataclass

from dagsim import Start
from dagsim.families.learning.codecs.codec import CandidatesConfig as Codec
from dagsim.systems.cluster.models.failures import Maintenance as Failures
from dagsim.systems.cluster.models.runtime import Recorded as Runtime
from dagsim.systems.cluster.network.base import UniformNetwork as Network
from dagsim.systems.cluster.policies.placement import BestFit as Placement
from dagsim.families.ramp.policies import MaxParallelism as RampPolicy
from dagsim.families.spark.policies import FairShare as SparkPolicy
from dagsim.families.spark.scenario import SparkScenario


class Policy:
    def decide(self, view):
        for task in list(view.ready):
            if placement := view.fit(task):
                yield Start(task, placement)


@dataclass(frozen=True)
class System(SparkScenario):
    executors: int = 3


@dataclass(frozen=True)
class Setup:
    wait_s: float = 7.0

    def seconds(self, task, job, previous):
        return self.wait_s


class Reader:
    name = "toy"
    summary = "a number of jobs"
    uses = frozenset()

    def recognises(self, source):
        return False

    def nearly(self, source):
        return None

    def read(self, source, options, report):
        from dagsim import Job, Task

        for number in range(int(source.path.read_text())):
            report.rows += 1
            report.kept += 1
            yield Job.single(str(number), Task("t", 1.0), float(number))

    def cluster(self, source, options):
        return None

    def downtimes(self, source, options):
        return ()

    def assumptions(self, source, options):
        return {}


class Metric:
    def of(self, schedule):
        return len(schedule.jobs) + 0.5


class Term:
    def __init__(self, kernel):
        self.kernel = kernel

    def cost(self, now):
        return 0.0
"""

TOYS = {
    "dagsim.systems": "System",
    "dagsim.policies": "Policy",
    "dagsim.placements": "Placement",
    "dagsim.spark_policies": "SparkPolicy",
    "dagsim.ramp_policies": "RampPolicy",
    "dagsim.runtimes": "Runtime",
    "dagsim.setups": "Setup",
    "dagsim.failures": "Failures",
    "dagsim.networks": "Network",
    "dagsim.metrics": "Metric",
    "dagsim.readers": "Reader",
    "dagsim.codecs": "Codec",
    "dagsim.spark_codecs": "Codec",
    "dagsim.ramp_codecs": "Codec",
    "dagsim.rewards": "Term",
    "dagsim.spark_rewards": "Term",
    "dagsim.ramp_rewards": "Term",
    "dagsim.nets": "Setup",
    "dagsim.algorithms": "Setup",
    "dagsim.advantages": "Setup",
    "dagsim.executors": "Setup",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package ``toys`` with an entry point ``toy`` of every kind."""
    folder = tmp_path / "site"
    facts = folder / "toys-1.0.dist-info"
    facts.mkdir(parents=True)
    (folder / "toys.py").write_text(MODULE, encoding="utf-8")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n", encoding="utf-8")
    points = "".join(f"[{group}]\ntoy = toys:{name}\n\n" for group, name in TOYS.items())
    (facts / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return folder


def test_the_table_of_architecture_names_every_kind() -> None:
    named = set(re.findall(r"`(dagsim\.\w+)`", TABLE))
    assert named == set(REGISTRIES)
    for place in re.findall(r"^\| [^|]+ \| `([\w/.]+)", TABLE, re.MULTILINE):
        assert list(ROOT.glob(place.replace("SYSTEM", "*").replace("KIND", "*").replace("NAME", "*"))), place


def test_every_registry_finds_the_toy_of_its_kind(package: Path) -> None:
    assert set(TOYS) == set(REGISTRIES)
    for group, target in REGISTRIES.items():
        registry: Registry[object] = attribute(target)
        assert registry.group == group
        assert "toy" in registry.names(), group
        entry = next(entry for entry in registry.describe() if entry.name == "toy")
        assert entry.summary == "from the package toys"
        assert getattr(registry.get("toy"), "__module__", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--algo", "toy"),
        ("--algo", "sjf[placement=toy]"),
        ("--set", "setup.kind=toy", "--set", "setup.wait_s=3"),
        ("--set", "network.kind=toy"),
        ("--set", "metrics=[toy]"),
        ("--set", "runtime.kind=toys:Runtime"),
        ("--set", "failures=[{kind: toy, nodes: [0], start_s: 10, end_s: 20}]"),
        ("--system", "toy", "--algo", "fair", "--set", "system.jobs=3"),
        ("--system", "spark", "--algo", "toy", "--set", "system.jobs=3"),
        ("--system", "ramp", "--algo", "toy", "--set", "system.jobs=3"),
        ("--workload", "jobs.toy", "--format", "toy", "--algo", "sjf"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_toy_runs_by_its_name(package: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "jobs.toy").write_text("4", encoding="utf-8")
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from dagsim.cli import main; main()"
    argv = [sys.executable, "-c", program, str(package), "eval", "--seeds", "1", "--no-plots", "--json", *arguments]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["runs"][0]
    assert run["metrics"]["jobs_completed"] > 0
