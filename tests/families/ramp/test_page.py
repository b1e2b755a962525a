"""The statements of ``docs/ramp.md`` and ``results/ramp/README.md`` hold."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import pytest
from gymnasium.utils.env_checker import check_env

from dagsim.families.ramp.api import DDLS, PLAIN, RAMP_POLICIES
from dagsim.families.ramp.server_placement import PLACERS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "ramp.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "results" / "ramp" / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.removeprefix("$ ") for line in PAGE.splitlines() if line.startswith("$ ")]
LONG_COMMANDS = [line.removeprefix("$ ") for line in RESULTS.splitlines() if line.startswith("$ ")]


@pytest.mark.family("pac_ml")
def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/ramp.md", "exec"), names)
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert 0 < float(printed["blocking_rate"]) < 1
    assert float(printed["job_completion_time_speedup"]) > 1
    assert printed["cause"] == "None"
    shaping = names["Shaping"](names["scenario"])  # type: ignore[operator]
    check_env(shaping, skip_render_check=True)
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
    assert len(code.splitlines()) <= 36
    _, over, accepted = shaping.reset(seed=1), False, 0
    while not over:
        _, reward, over, _, _ = shaping.step(0)
        accepted += reward > 0
    outcomes = shaping.talk.kernel.outcomes
    assert accepted == sum(outcome.reason is None for outcome in outcomes)


def test_every_policy_and_placer_is_on_the_page() -> None:
    named = re.findall(r"`([a-z_]+)(?:\[[^`]*\])?`", PAGE)
    assert set(RAMP_POLICIES.names()) <= set(named)
    assert set(PLACERS.names()) <= set(named)


def test_every_rule_that_ddls_has_otherwise_is_on_the_page() -> None:
    differ = {
        field.name for field in dataclasses.fields(PLAIN) if getattr(PLAIN, field.name) != getattr(DDLS, field.name)
    }
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE))
    assert differ - {"quantum_s", "same_s"} <= rows


def test_the_figures_are_those_of_the_results() -> None:
    results = json.loads((ROOT / "results" / "ramp" / "ddls.json").read_text())
    rows = re.findall(
        r"^\| ([A-D]) \| ([\d.]+) \| ([\d.]+) \((\d+) ways\) \| ([\d.]+) \| `([^`]+)` \|$", RESULTS, re.MULTILINE
    )
    assert len(rows) == 4
    for beta, most, constant, degree, best, policy in rows:
        of = results[beta]
        assert f"{of['max, first_fit']['mean_blocking']:.4f}" == most
        assert f"{of[f'constant[degree={degree}], first_fit']['mean_blocking']:.4f}" == constant
        assert f"{of[f'{policy}, best_fit']['mean_blocking']:.4f}" == best
        others = [row["mean_blocking"] for name, row in of.items() if re.match(r"constant.*first_fit", name)]
        assert f"{min(others):.4f}" == constant


def test_the_figures_of_other_settings_are_those_of_the_results() -> None:
    row = r"^\| ([a-z]+) \| ([AC]) \| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) \| ([\d.]+) \| `([^`]+)`, `([^`]+)` \|$"
    rows = re.findall(row, RESULTS, re.MULTILINE)
    assert len(rows) == 6
    for setting, beta, most, communication, constant, best, policy, placer in rows:
        of = json.loads((ROOT / "results" / "ramp" / f"{setting}.json").read_text())[beta]
        assert f"{of['max, first_fit']['mean_blocking']:.4f}" == most
        assert f"{100 * of['max, first_fit']['communication']:.1f}" == communication
        assert f"{of['constant[degree=4], first_fit']['mean_blocking']:.4f}" == constant
        assert f"{of[f'{policy}, {placer}']['mean_blocking']:.4f}" == best
        assert f"{min(entry['mean_blocking'] for entry in of.values()):.4f}" == best


def test_the_figures_of_agents_are_those_of_the_results() -> None:
    results = json.loads((ROOT / "results" / "ramp" / "agents.json").read_text())
    figure = r"([\d.]+)"
    row = r"^\| ([A-D]) \| " + rf"{figure} \| " * 5 + rf"{figure} \({figure} to {figure}\) \| ([^|]+) \|"
    rows = re.findall(row, RESULTS, re.MULTILINE)
    assert {beta for beta, *_ in rows} == set(results)
    for beta, _, _, constant, on_time, tuned, *agent in rows:
        policies = results[beta]["policies"]
        means = {name: fmean(policies[name]["blocking"]) for name in policies}
        by_start = {
            name.split("[")[0] + name.split(",")[-1]: value for name, value in means.items() if "tuned" not in name
        }
        assert f"{by_start['constant first_fit']:.4f}" == constant
        assert f"{by_start['on_time best_fit']:.4f}" == on_time
        assert f"{next(value for name, value in means.items() if 'tuned' in name):.4f}" == tuned
        of_agents = fmean(value for name, value in means.items() if name.startswith("agent "))
        assert f"{of_agents:.4f}" == agent[0]
        assert [f"{bound:.4f}" for bound in results[beta]["interval"]] == agent[1:3]
        less = [
            row["difference"]
            for name, row in results[beta]["against"].items()
            if re.match(r"constant.*first_fit", name)
        ]
        assert ["{:.4f} ({:.4f} to {:.4f})".format(*interval) for interval in less] == agent[3:]


def test_the_figures_of_agents_elsewhere_are_those_of_the_results() -> None:
    figure = r"(-?[\d.]+)"
    row = r"^\| (plain|mixed) \| ([A-D]) \| " + rf"{figure} \| " * 3 + rf"{figure} \({figure} to {figure}\) \| " * 2
    rows = re.findall(row.rstrip(), RESULTS, re.MULTILINE)
    assert len(rows) == 8
    for setting, beta, *shown in rows:
        results = json.loads((ROOT / "results" / "ramp" / "judged" / f"{setting}-{beta}.json").read_text())
        means = {name: fmean(entry["blocking"]) for name, entry in results["policies"].items()}
        best = {kind: min(name for name in means if means[name] == of_kind(means, kind)) for kind in KINDS}
        expected = [means[best[kind]] for kind in KINDS]
        expected += [*results["agents"]["blocking"], *results["agents"]["against"][best["constant"]]["difference"]]
        assert [f"{value:.4f}" for value in expected] == shown


KINDS = ("constant", "on_time", "roomy")


def of_kind(means: Mapping[str, float], kind: str) -> float:
    return min(value for name, value in means.items() if name.startswith(kind))


def test_the_files_of_the_commands_that_made_the_results_exist() -> None:
    assert LONG_COMMANDS
    for command in LONG_COMMANDS:
        program, *words = shlex.split(command)
        assert program in {"dagsim", "python"}
        files = [word for word in words if word.endswith((".py", ".yaml"))]
        tables = [word.removesuffix("-C") for word in words if word.startswith("ramp/")]
        files += [f"scripts/tables/{name}.yaml" for name in tables]
        assert files
        assert all((ROOT / name).is_file() for name in files)


@pytest.mark.data
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs(data: Path, tmp_path: Path, command: str) -> None:
    words = shlex.split(command.replace("$DAGSIM_DATA", str(data)).replace("docs/images", str(tmp_path)))
    assert words[0] == "python"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=tmp_path if words[1] == "-m" else ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
