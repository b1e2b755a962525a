"""Schedulers in other programs: the protocol, and what becomes of a program that breaks it."""

from __future__ import annotations

import copy
import gc
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, IllegalDecision, PolicyFailed, UnknownName
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import make_policy, run_policy
from dagsim.families.programs.external import External
from dagsim.model import Cluster, Job, Start, Task
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.api import ClusterView

ROOT = Path(__file__).parents[3]
FIFO = """
import json, sys
for line in sys.stdin:
    q = json.loads(line)
    if q["ask"] == "decide":
        print(json.dumps({"decisions": [{"start": t["task"]} for t in q["ready"]]}), flush=True)
"""
ONCE = "import sys; sys.stdin.readline(); sys.stdin.readline(); print({answer!r}, flush=True); sys.stdin.read()"


def program(tmp_path: Path, code: str, name: str = "own.py") -> str:
    (tmp_path / name).write_text(code, encoding="utf-8")
    return f"{sys.executable} -SE {tmp_path / name}"


def run(command: str, timeout_s: float = 10.0) -> list[tuple[str, float]]:
    jobs = [Job.single("long", Task("t", 10.0)), Job.single("short", Task("t", 1.0), 3.0)]
    schedule = ClusterKernel(Cluster.of({"T4": 1}), jobs).run(External(command, timeout_s))
    return [(row.kind.name, row.time_s) for row in schedule.log if row.kind.name in ("STARTED", "FINISHED")]  # type: ignore[attr-defined]


def test_another_program_schedules(tmp_path: Path) -> None:
    assert run(program(tmp_path, FIFO)) == [("STARTED", 0), ("FINISHED", 10), ("STARTED", 10), ("FINISHED", 11)]


def test_it_may_preempt_place_and_wait(tmp_path: Path) -> None:
    code = """
import json, sys
for line in sys.stdin:
    q = json.loads(line)
    if q["ask"] != "decide":
        assert q == {"ask": "begin", "protocol": 1, "gpu_types": ["T4"],
                     "nodes": [{"name": "t4-0", "type": 0, "gpus": 1, "cpus": 12.0, "memory_gb": 128.0}]}, q
        continue
    ready, running, out = q["ready"], q["running"], []
    if q["now"] == 0 and ready:
        out = [{"wait": 2.0}]
    elif ready and running and ready[0]["seconds"][0] < running[0]["expected_end"] - q["now"]:
        out = [{"preempt": running[0]["run"]}, {"start": ready[0]["task"], "nodes": [[0, 1]]}]
    elif ready:
        out = [{"start": ready[0]["task"], "type": 0}]
    print(json.dumps({"decisions": out}), flush=True)
"""
    # Long begins at 2 s, gives way to short from 3 to 4, and ends at 13.
    assert run(program(tmp_path, code)) == [
        *[("STARTED", 2), ("STARTED", 3), ("FINISHED", 4), ("STARTED", 4), ("FINISHED", 13)],
    ]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("hello", "that is not JSON"),
        ("[1, 2]", 'expected {"decisions"'),
        ('{"start": "0.0.0"}', 'expected {"decisions"'),
        ('{"decisions": [{"start": "9.0.0"}]}', "no ready task '9.0.0'"),
        ('{"decisions": [{"start": "0.0.0", "type": 3}]}', "type must be a place"),
        ('{"decisions": [{"start": "0.0.0", "nodes": [0]}]}', "must be a list of"),
        ('{"decisions": [{"wait": NaN}]}', 'expected {"start"'),
        ('{"decisions": [{"preempt": true}]}', 'expected {"start"'),
        ('{"decisions": [{"sing": 1}]}', 'expected {"start"'),
    ],
)
def test_nonsense_is_named(answer: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyFailed, match=r"own\.py' at 0 s: the program answered") as error:
        run(program(tmp_path, ONCE.replace("{answer!r}", repr(answer))))
    assert message in str(error.value)


def test_an_illegal_decision_is_the_kernels_matter(tmp_path: Path) -> None:
    answer = '{"decisions": [{"start": "0.0.0", "nodes": [[7, 1]]}]}'
    with pytest.raises(IllegalDecision, match=r"exec:.*own\.py"):
        run(program(tmp_path, ONCE.replace("{answer!r}", repr(answer))))


def test_a_program_that_dies_hangs_or_closes_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyFailed, match="ended with exit code 3"):
        run(program(tmp_path, "raise SystemExit(3)"))
    with pytest.raises(PolicyFailed, match="was killed by signal 9"):
        run(program(tmp_path, "import os; os.kill(os.getpid(), 9)"))
    began = time.monotonic()
    with pytest.raises(PolicyFailed, match=r"no answer within 0\.2 s"):
        run(program(tmp_path, "import time; time.sleep(60)"), 0.2)
    assert time.monotonic() - began < 10


def test_a_program_that_reads_nothing_is_late_too(tmp_path: Path) -> None:
    """More is asked than a pipe holds, so that writing blocks."""
    command = program(tmp_path, "import time; time.sleep(60)")
    jobs = [Job.single("x" * 200, Task("t", 1.0)) for _ in range(1000)]
    with pytest.raises(PolicyFailed, match=r"no answer within 0\.3 s"):
        ClusterKernel(Cluster.of({"T4": 1}), jobs).run(External(command, 0.3))


def test_the_program_ends_with_the_simulation(tmp_path: Path) -> None:
    policy = External(program(tmp_path, FIFO))
    ClusterKernel(Cluster.of({"T4": 1}), [Job.single("a", Task("t", 1.0))]).run(policy)
    process = policy._process
    assert process is not None
    assert process.poll() is None
    del policy
    gc.collect()
    assert process.poll() == 0


def test_commands_are_split_by_no_shell(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    policy = External(f"{sys.executable} -c pass ; touch {witness} $(touch {witness})")
    assert policy.argv[3:5] == [";", "touch"]
    with pytest.raises(PolicyFailed):
        ClusterKernel(Cluster.of({"T4": 1}), [Job.single("$(touch w)", Task("t", 1.0))]).run(policy)
    assert not witness.exists()


def test_what_cannot_be_a_command_is_refused() -> None:
    for command, error in (("", ConfigError), ("'x", ConfigError), ("no-such-program", UnknownName)):
        with pytest.raises(error, match="exec:"):
            External(command)
    with pytest.raises(ConfigError, match="timeout_s"):
        External("true", 0)
    with pytest.raises(PolicyFailed, match="cannot be forked"):
        copy.deepcopy(External("true"))
    with pytest.raises(UnknownName, match="only schedule the system 'cluster'"):
        make_policy(scenario_of(load_config(None, ["system=spark"])), "exec:true")
    with pytest.raises(UnknownName, match="no parameter 'time'"):
        make_policy(scenario_of(load_config(None)), "exec[time=3]:true")


class SameInPython:
    """The example of docs/reference/protocol.md, in Python."""

    def decide(self, view: ClusterView) -> Iterator[Start]:
        ready = list(view.ready)
        if not ready:
            return
        head, *others = ready
        limit = self.head_start(head, view)
        longest = {task: max(seconds for seconds in task.seconds if seconds < float("inf")) for task in others}
        for task in [head, *(task for task in others if view.now + longest[task] <= limit)]:
            if task.waiting and (placement := view.fit(task)):
                yield Start(task, placement)

    def head_start(self, head: object, view: ClusterView) -> float:
        need = head.waiting * head.task.gpus - sum(state.idle for state in view.machines.list if state.up)  # type: ignore[attr-defined]
        for run in sorted(view.running.values(), key=lambda run: run.estimated_end_s(view.now)):
            need -= run.gpus
            if need <= 0:
                return run.estimated_end_s(view.now)
        return float("inf")


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_the_example_in_javascript_gives_the_log_of_the_same_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(None, ["workload.count=25", "workload.load=1.2"])
    script = ROOT / "docs" / "examples" / "backfill.js"
    assert len([line for line in script.read_text().splitlines() if line.strip() and "//" not in line]) <= 30
    theirs = run_policy(config, f"exec:node {script}", 5).schedule
    monkeypatch.setattr("dagsim.experiment.simulate.make_policy", lambda *_: SameInPython())
    assert theirs.log == run_policy(config, "same", 5).schedule.log
    assert len(theirs.log) > 75
