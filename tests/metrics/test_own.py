"""Metrics of the user's own stand beside dagsim's, in every table of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import fine, invoke

from dagsim.config.dumping import config_hash
from dagsim.config.schema import load_config
from dagsim.errors import ConfigError

MODULE = '''
class Arrivals:
    """Jobs that arrived, times a factor."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def of(self, schedule) -> float:
        return self.factor * len(schedule.jobs)


class Broken:
    def of(self, schedule):
        return schedule.no_such_thing


class Text:
    def of(self, schedule):
        return "many"


class Other:
    pass
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(MODULE, encoding="utf-8")
    return "./own.py"


def dagsim(*arguments: str) -> tuple[int, str, str]:
    ended = invoke(*arguments, "--set", "workload.count=7", "--no-plots", "-o", "out")
    return ended.exit_code, ended.stdout, ended.stderr


def test_a_metric_of_a_file_is_computed_for_each_run(module: str) -> None:
    code, out, err = dagsim("eval", "--set", f'metrics=["{module}:Arrivals[factor=3]"]', "--seeds", "2", "--json")
    assert code == 0, err
    assert [run["metrics"]["Arrivals"] for run in json.loads(out)["runs"]] == [21.0, 21.0]
    code, out, err = dagsim("eval", "--set", f'metrics=["{module}:Arrivals"]', "--seeds", "2")
    assert code == 0, err
    assert "Arrivals" in out


def test_a_sweep_compares_by_it(module: str) -> None:
    Path("grid.yaml").write_text(
        f'set: {{workload.count: 7, metrics: ["{module}:Arrivals"]}}\nover: {{policy: [fifo, sjf]}}\n'
        "seeds: 2\nmetrics: [Arrivals, jct_s.mean]\n",
        encoding="utf-8",
    )
    ended = fine("sweep", "grid.yaml", "-o", "out", "--json", "--on", "local:1")
    assert "Arrivals" in ended.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Broken", "AttributeError"),
        ("Text", "ValueError"),
        ("Other", "is not a metric: it has no method of()"),
        ("None", "has no attribute 'None'"),
    ],
)
def test_a_metric_that_cannot_work_says_why(module: str, name: str, message: str) -> None:
    code, _, err = dagsim("eval", "--set", f'metrics=["{module}:{name}"]', "--seeds", "1")
    assert code != 0
    assert message in err


def test_two_metrics_of_one_name_are_refused() -> None:
    for names in ('["a:Same", "b:Same"]', '["a:jobs_arrived"]'):
        with pytest.raises(ConfigError, match="is already the name of another metric"):
            load_config(None, [f"metrics={names}"])


def test_a_configuration_without_them_keeps_its_hash() -> None:
    assert config_hash(load_config(None, ["metrics=[]"])) == config_hash(load_config(None))
    assert config_hash(load_config(None, ['metrics=["a:B"]'])) != config_hash(load_config(None))
