from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.command_line import invoke
from support.runs import kept

from dagsim.config.schema import load_config
from dagsim.experiment.carry_out import RunProgress
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.store import Store

CONFIG = load_config(None, ["cluster.groups=[{name: t4, gpu: T4, gpus: 8}]", "workload.count=5", "seeds=4"])


def at_run(number: int, act: Callable[[], None]) -> Callable[[RunProgress], None]:
    return lambda step: act() if step.done == number else None


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def press_unheard() -> None:
    with suppress(KeyboardInterrupt):  # as NumPy does
        press()


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return RunStore.create(tmp_path, "eval", CONFIG, argv=[])


def test_every_result_is_kept_and_the_run_is_done(folder: Store) -> None:
    lines = kept(folder, CONFIG, ("fifo",))
    assert [line.seed for line in lines] == folder.manifest["seeds"]
    assert folder.state == "done"


@pytest.mark.parametrize("ctrl_c", [press, press_unheard])
def test_ctrl_c_keeps_what_is_finished(folder: Store, ctrl_c: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        kept(folder, CONFIG, ("fifo",), at_run(2, ctrl_c))
    # Heard at once, run 2 is lost; dropped on its way, it stops the experiment once run 2 is written.
    assert len(folder.lines()) == (2 if ctrl_c is press else 3)
    assert folder.state == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_waits_until_a_result_is_written(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add = RunStore.add

    def pressed_meanwhile(self: Store, result: object) -> None:
        press()
        add(self, result)  # type: ignore[arg-type]

    monkeypatch.setattr(RunStore, "add", pressed_meanwhile)
    with pytest.raises(KeyboardInterrupt):
        kept(folder, CONFIG, ("fifo",))
    assert len(folder.lines()) == 1


def test_a_fault_keeps_what_is_finished(folder: Store) -> None:
    def fail() -> None:
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        kept(folder, CONFIG, ("fifo",), at_run(1, fail))
    assert len(folder.lines()) == 1
    assert folder.state == "failed"
    assert "RuntimeError: out of luck" in (folder.path / "status.json").read_text()


def test_a_long_run_names_the_faster_engine_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--set", "workload.count=10", "--algo", "sjf", "--no-plots", "-o", str(tmp_path)]
    assert "compiled engine gives" not in invoke("eval", "--seeds", "3", *options).stderr
    monkeypatch.setattr("dagsim.families.compiled.choice.LONG_S", 0.0)
    monkeypatch.setattr("dagsim.families.compiled.choice.is_installed", lambda: False)
    ended = invoke("eval", "--seeds", "3", *options)
    assert ended.stderr.count("The compiled engine gives the same results") == 1
    assert "pip install -e '.[fast]'" in " ".join(ended.stderr.split())
    assert "gives the same" not in invoke("eval", "--seeds", "3", "-q", *options).stderr


def test_a_piped_command_names_the_faster_engine_once_and_not_beside_json(tmp_path: Path) -> None:
    code = "from dagsim.families.compiled import choice; choice.LONG_S = 0.0; "
    code += "choice.is_installed = bool; from dagsim.cli import main; main()"
    options = ["--seeds", "2", "--workers", "1", "--set", "workload.count=10", "--algo", "sjf", "--no-plots"]
    words = [sys.executable, "-c", code, "eval", *options, "-o", str(tmp_path)]
    piped, as_json = (
        subprocess.run([*words, *more], capture_output=True, text=True, check=True) for more in ([], ["--json"])
    )
    assert piped.stderr.count("The compiled engine gives the same results") == 1
    assert "compiled engine gives" not in piped.stdout + as_json.stdout
    assert len(json.loads(as_json.stdout)["runs"]) == 2
