"""``--on ray`` writes the bytes of ``--on local``, whatever the order in which cells end.

Ray itself is checked by ``scripts/check_ray.py`` and, where it is installed, by ``tests/cli/test_resume.py``; here a
stand-in answers the latest cell first.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from support.command_line import fine, invoke, json_of

from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.training.ray_rollouts import RayRollouts


class RayError(Exception):
    pass


class Answer:
    """The reference to a value, or to the error of a worker that is lost."""

    def __init__(self, value: Any, lost: bool = False) -> None:
        self.content, self.lost = pickle.dumps(value), lost


def get(answer: Answer) -> Any:
    if answer.lost:
        raise RayError("the actor died")
    return pickle.loads(answer.content)


class Remote:
    """A function, a class or a method that runs elsewhere. Every call numbered in ``losses`` is lost."""

    losses: ClassVar[set[int]] = set()
    calls = 0

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def options(self, **_: object) -> Remote:
        return self

    def remote(self, *arguments: Any) -> Any:
        values = [get(value) if isinstance(value, Answer) else value for value in arguments]
        if isinstance(self.function, type):
            return Actor(self.function(*values))
        if self.function.__name__ != "play":
            return Answer(self.function(*values))
        Remote.calls += 1
        return Answer(self.function(*values), lost=Remote.calls in Remote.losses)


class Actor:
    def __init__(self, instance: Any) -> None:
        self.instance = instance

    def __getattr__(self, name: str) -> Remote:
        return Remote(getattr(self.instance, name))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    module, exceptions = ModuleType("ray"), ModuleType("ray.exceptions")
    exceptions.RayError, exceptions.RayTaskError = RayError, type("RayTaskError", (RayError,), {})
    module.__dict__.update(
        exceptions=exceptions,
        is_initialized=lambda: False,
        init=lambda **_: None,
        shutdown=lambda: None,
        put=Answer,
        get=get,
        kill=lambda actor: None,
        cluster_resources=lambda: {"CPU": 2},
        remote=Remote,
        wait=lambda pending, num_returns, timeout=None: (pending[-1:], pending[:-1]),
    )
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
    monkeypatch.setattr(Remote, "calls", 0)
    monkeypatch.setattr(Remote, "losses", set())


def tables(root: Path, on: str, *arguments: object) -> dict[str, bytes]:
    command = [*arguments, "--on", on, "-q", "-o", root / on.replace(":", "")]
    fine(*command)
    (run,) = (root / on.replace(":", "")).iterdir()
    return {name: (run / name).read_bytes() for name in ("runs.jsonl", "summary.json")} | {
        path.name: path.read_bytes() for path in [*run.glob("*.csv*"), *run.glob("schedules/*")]
    }


@pytest.mark.usefixtures("ray")
def test_a_baseline_on_ray_is_kept_in_the_order_of_its_plan(tmp_path: Path) -> None:
    arguments = ("baseline", "--policy", "sjf", "--policy", "fifo", "--seeds", 5, "--set", "workload.count=15")
    assert tables(tmp_path, "ray", *arguments, "--no-plots") == tables(tmp_path, "local:1", *arguments, "--no-plots")


@pytest.mark.usefixtures("ray")
def test_twice_the_cores_are_sent_twice_the_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray, most = sys.modules["ray"], {1: 0, 2: 0}
    answered = ray.wait
    for cores in most:

        def wait(pending: list[Answer], cores: int = cores, **how: Any) -> Any:
            most[cores] = max(most[cores], len(pending))
            return answered(pending, **how)

        monkeypatch.setattr(ray, "wait", wait)
        monkeypatch.setattr(ray, "cluster_resources", lambda cores=cores: {"CPU": cores})
        workload = ("--seeds", 20, "--set", "workload.count=2", "--no-plots")
        tables(tmp_path / str(cores), "ray", "baseline", "--policy", "fifo", *workload)
    assert most[2] == 2 * most[1] > 0


@pytest.mark.usefixtures("ray")
def test_a_trace_is_sent_to_the_workers(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("id,arrival_s,gpus,duration_s\n" + "".join(f"j{n},{n},{1 + n % 4},{9 + n}\n" for n in range(20)))
    arguments = ("replay", "--trace", log, "--policy", "sjf", "--no-plots")
    runs = tmp_path / "runs"
    assert tables(runs, "ray", *arguments) == tables(runs, "local:1", *arguments)


@pytest.mark.usefixtures("ray")
def test_a_plan_on_ray_finds_the_size_that_it_finds_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"j{n},{50 * n},1,{90 + 7 * n % 40}\n" for n in range(80))
    Path("log.csv").write_text("id,arrival_s,gpus,duration_s\n" + rows, encoding="utf-8")
    Path("c.yaml").write_text("cluster: {groups: [{name: n, gpu: T4, gpus: 1, count: 2}]}\n", encoding="utf-8")
    answers = []
    for on in ("ray", "local:1"):
        command = ["plan", "--trace", "log.csv", "--cluster", "c.yaml", "--target", "wait_s.p95<60", "--price", "none"]
        answers.append(
            {key: value for key, value in json_of(*command, "--on", on, "-o", on[:3]).items() if key != "run"}
        )
    assert answers[0]["best"]["gpus"] >= 2
    assert answers[0] == answers[1]


TRAINING = ["linear_iterations=0", "validation_seeds=2", "report_seeds=3", "reference=sjf", "rivals=[fifo]"]
TRAINING += ["algorithm.sequences=2", "algorithm.replicas=2", "net.hidden=8", "lockstep=1"]


def trained(out: Path, on: str, workload: str = "workload.count=6") -> list[bytes]:
    """The report and the agent of a training; the file of the agent differs by its date alone."""
    settings = [*(f"train.{setting}" for setting in TRAINING), workload]
    words = [word for setting in settings for word in ("--set", setting)]
    fine("train", *words, "--iterations", "2", "--on", on, "-q", "-o", out)
    (folder,) = (path.parent for path in out.glob("*/report.csv"))
    weights = Checkpoint.load(folder / "best.pt").weights
    return [(folder / "report.csv").read_bytes(), *(value.numpy().tobytes() for value in weights.values())]


@pytest.mark.usefixtures("ray")
def test_a_training_on_ray_is_that_of_this_machine_even_if_actors_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, rollouts = RayRollouts._begin, list[RayRollouts]()
    monkeypatch.setattr(RayRollouts, "_begin", lambda self: (rollouts.append(self), begin(self)))
    Remote.losses.update({1, 4, 5})  # of the 8 parts
    on_ray = trained(tmp_path / "ray", "ray")
    assert Remote.calls == 8 + 3
    assert {one.traffic.lost for one in rollouts} == {3}
    assert on_ray == trained(tmp_path / "local", "local:1")


@pytest.mark.usefixtures("ray")
def test_the_trace_of_a_training_is_sent_to_the_actors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.csv"
    log.write_text("id,arrival_s,gpus,duration_s\n" + "".join(f"j{n},{n},{1 + n % 4},{9 + n}\n" for n in range(300)))
    workload = f"workload={{kind: trace, path: {log}, window: 5, windows: 3}}"
    local = trained(tmp_path / "local", "local:1", workload)
    begin = RayRollouts._begin

    def checked(self: RayRollouts) -> None:
        begin(self)
        for actor in self._starting.values():
            sent = Path(actor.instance._player.factory.scenario.workload.path)
            assert sent != log
            assert sent.read_bytes() == log.read_bytes()

    monkeypatch.setattr(RayRollouts, "_begin", checked)
    assert trained(tmp_path / "ray", "ray", workload) == local


@pytest.mark.usefixtures("ray")
def test_a_training_whose_actors_are_always_lost_ends(tmp_path: Path) -> None:
    Remote.losses.update(range(1000))
    words = [word for setting in TRAINING for word in ("--set", f"train.{setting}")]
    command = ["train", *words, "--set", "workload.count=6", "--iterations", "2", "--on", "ray", "-o", str(tmp_path)]
    ended = invoke(*command)
    assert ended.exit_code == 1
    assert "actors have been lost repeatedly" in ended.stderr


@pytest.mark.usefixtures("ray")
def test_workers_are_not_counted_on_ray(tmp_path: Path) -> None:
    ended = invoke("eval", "--on", "ray", "--workers", "2", "-o", tmp_path)
    assert ended.exit_code == 2
    assert "--workers 2: sets the number of processes on this machine, so leave out --executor" in ended.stderr
    assert not list(tmp_path.iterdir())
