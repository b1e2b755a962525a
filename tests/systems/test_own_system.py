"""A system of one's own: the guide's code runs, passes ``check_system``, and its faults are noticed."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from support.command_line import fine

import dagsim.envs  # registers the environments
from dagsim.config.schema import load_config
from dagsim.errors import ConfigError
from dagsim.experiment.simulate import run_policy
from dagsim.model import Kind
from dagsim.testing import check_env, check_system

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "docs" / "examples" / "model_server.py"
PAGE = (ROOT / "docs" / "own-system.md").read_text(encoding="utf-8")


def module() -> Any:
    if "model_server" not in sys.modules:
        spec = importlib.util.spec_from_file_location("model_server", SOURCE)
        assert spec is not None
        assert spec.loader is not None
        sys.modules["model_server"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["model_server"])
    return sys.modules["model_server"]


def test_the_system_of_the_guide_has_100_lines_and_keeps_the_contract() -> None:
    lines = [line for line in SOURCE.read_text(encoding="utf-8").splitlines() if line.strip()]
    imports = [line for line in lines if line.startswith(("from ", "import "))]
    assert len(lines) - len(imports) <= 110
    for policy in ("in-order", "same-model"):
        check_system(module().ModelServer(requests=60), policy)


def test_requests_for_a_loaded_model_wait_for_no_load() -> None:
    """Two requests for one model on one GPU: the second starts when the first ends, without ``load_s``."""
    server = module().ModelServer(gpus=1, models=1, requests=2, gap_s=1e-9, load_s=5.0)
    schedule = run_policy(load_config(None, [f"system.kind={SOURCE}:ModelServer"]), "in-order", 1).schedule
    assert len(schedule.jobs) == 500
    schedule = check_system(server)
    times = [row.time_s for row in schedule.log if row.kind == Kind.FINISHED]
    seconds = [job.ideal_s for job in schedule.jobs]
    assert times == pytest.approx([5.0 + seconds[0], 5.0 + seconds[0] + seconds[1]])


def broken(**methods: Any) -> Any:
    """The system of the guide, with other methods of its kernel."""
    own = module()
    kernel = type("Broken", (own.ServerKernel,), methods)

    @dataclass(frozen=True)
    class Server(own.ModelServer):  # type: ignore[misc,name-defined]
        def kernel(self, seed: int, *, record: bool = True, on_arrivals: Any = None) -> Any:
            return kernel(self, seed, on_arrivals)

    return Server(requests=30)


def _finish_twice(self: Any, request: int, gpu: int) -> None:
    module().ServerKernel._finish(self, request, gpu)
    self._write(Kind.COMPLETED, request)


def _finish_silently(self: Any, request: int, gpu: int) -> None:
    self.idle.add(gpu)
    self._write(Kind.COMPLETED, request)


def _accept_anything(self: Any, decision: Any) -> None:
    if isinstance(decision, module().Serve):
        module().ServerKernel._serve(self, decision)


def _crash(self: Any, decision: Any) -> None:
    dict(self.waiting)[decision.request]
    module().ServerKernel._serve(self, decision)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"_finish": _finish_twice}, "leaves 2 times"),
        ({"_finish": _finish_silently}, "never ends"),
        ({"_serve": _accept_anything}, "the decision 5 is accepted"),
        ({"_serve": _crash}, "the decision 5 raises AttributeError, not IllegalDecision"),
        ({"_on_arrivals": property(lambda self: None, lambda self, value: None)}, "on_arrivals is first called with"),
    ],
)
def test_a_broken_rule_is_named(methods: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        check_system(broken(**methods))


def test_a_kernel_that_ignores_its_seed_is_noticed() -> None:
    own = module()

    @dataclass(frozen=True)
    class Server(own.ModelServer):  # type: ignore[misc,name-defined]
        def kernel(self, seed: int, *, record: bool = True, on_arrivals: Any = None) -> Any:
            return own.ServerKernel(self, 7, on_arrivals)

    with pytest.raises(AssertionError, match="seeds 1 and 2 give the same log"):
        check_system(Server(requests=30))


@pytest.mark.parametrize("command", [line[2:] for line in PAGE.splitlines() if line.startswith("$ dagsim")])
def test_every_command_of_the_guide_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    result = fine(*shlex.split(command)[1:])
    assert "in-order" in result.output


@pytest.mark.parametrize(
    "name",
    [
        "dagsim/Scheduling-v0",
        pytest.param("dagsim/Decima-v0", marks=pytest.mark.family("decima")),
        pytest.param("dagsim/Partition-v0", marks=pytest.mark.family("pac_ml")),
    ],
)
def test_the_environments_pass_the_check_that_users_have(name: str) -> None:
    assert dagsim.envs
    check_env(lambda: gymnasium.make(name), steps=60)
    check_env(gymnasium.make(name), steps=20)


def test_an_environment_that_does_not_repeat_is_noticed() -> None:
    class Forgetful(gymnasium.Wrapper[Any, Any, Any, Any]):
        count = 0

        def step(self, action: Any) -> Any:
            observation, reward, *rest = self.env.step(action)
            Forgetful.count += 1
            return observation, float(reward) + Forgetful.count, *rest

    with pytest.raises(AssertionError, match="step 1 of two episodes with seed 1"):
        check_env(lambda: Forgetful(gymnasium.make("dagsim/Scheduling-v0")), steps=5)


def test_a_system_that_is_no_scenario_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loose_world.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Loose:\n"
        "    def kernel(self, seed):\n"
        "        return None\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"system: loose_world:Loose is not a Scenario, so derive the class"):
        load_config(None, ["system.kind=loose_world:Loose"])
