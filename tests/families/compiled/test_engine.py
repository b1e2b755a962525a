"""The engine of a run: chosen by itself or asked for, the same bytes from each, and the reason in the manifest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import fine, invoke
from support.runs import kept

from dagsim.config.schema import Config, load_config
from dagsim.errors import ConfigError
from dagsim.experiment.cell_run import engine_of
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.simulate import check, run_policy
from dagsim.experiment.store import Store
from dagsim.families.compiled import choice, drive, jit
from dagsim.families.compiled.choice import BESIDE, EXAMPLES, costs, faster_engine, fewest, pays, plan_for, why_not
from dagsim.model import Cluster
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import EngineUse
from dagsim.traces import reader

SMALL = ("workload={preset: heterogeneous-dag, count: 12}", "seeds=2")
COMPARED = ("runs.jsonl", "summary.json", "jobs.csv.gz", "tasks.csv.gz")


@pytest.fixture(autouse=True)
def plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's functions as they are: nothing is compiled here."""
    monkeypatch.setattr(jit, "jitted", lambda: False)


def config(*settings: str) -> Config:
    return load_config(None, [*SMALL, *settings])


def folder_of(tmp_path: Path, chosen: Config, policies: tuple[str, ...] = ("sjf",)) -> Store:
    folder = RunStore.create(tmp_path, "eval", chosen, argv=["dagsim"], policies=policies)
    kept(folder, chosen, policies)
    return folder


def manifest(folder: Store) -> dict[str, str]:
    return dict(json.loads((folder.path / "manifest.json").read_text())["engine"])


def test_run_folders_are_equal_whichever_engine_wrote_them(tmp_path: Path) -> None:
    folders = [folder_of(tmp_path / engine, config(f"engine={engine}")) for engine in ("simpy", "compiled")]
    assert [manifest(folder)["used"] for folder in folders] == ["simpy", "compiled"]
    files = [*COMPARED, *(f"schedules/{file.name}" for file in (folders[0].path / "schedules").iterdir())]
    assert len(files) == len(COMPARED) + 4
    for file in files:
        assert (folders[0].path / file).read_bytes() == (folders[1].path / file).read_bytes(), file
    assert (
        Store.open(folders[1].path).schedule(1).log
        == run_policy(folders[1].config, "sjf", *seeds(folders[1])).schedule.log
    )


def seeds(folder: Store) -> list[int]:
    return [line.seed for line in folder.lines()][1:]


def test_a_small_run_stays_with_simpy_and_says_so(tmp_path: Path) -> None:
    engine = manifest(folder_of(tmp_path, config("seeds=1")))
    assert (engine["asked"], engine["used"]) == ("auto", "simpy")
    assert f"fewer than {fewest():,} tasks" in engine["reason"]


@pytest.mark.parametrize(
    ("warm", "used", "reason"), [(True, "compiled", "10 tasks or more"), (False, "simpy", "not compiled yet")]
)
def test_a_large_run_takes_what_was_compiled(
    monkeypatch: pytest.MonkeyPatch, warm: bool, used: str, reason: str
) -> None:
    cheap = {loop: {**cost, "pays": 10} for loop, cost in costs().items()}
    monkeypatch.setattr("dagsim.families.compiled.choice.costs", lambda: cheap)
    monkeypatch.setattr(drive, "is_warm", lambda policy: warm)
    result = run_policy(config(), "sjf", 0)
    assert result.engine is not None
    assert (result.engine.asked, result.engine.used) == ("auto", used)
    assert reason in result.engine.reason
    assert result.schedule.log == run_policy(config("engine=simpy"), "sjf", 0).schedule.log


def test_the_measured_costs_are_of_all_loops_and_give_the_number_of_tasks_from_which_each_pays() -> None:
    for policy in EXAMPLES:
        cost = costs()[plan_for(policy, Preemption()).loop]
        meet = 1e6 * cost["load_s"] / (cost["simpy_us"] - cost["compiled_us"])
        assert pays(policy) == cost["pays"] >= max(meet, 1000)
    assert len(costs()) == len(EXAMPLES)
    assert pays("2d-las[quantum_s=30]") == pays("las")
    assert fewest() == min(pays(policy) for policy in EXAMPLES)


@pytest.mark.parametrize(
    ("settings", "policy", "named"),
    [
        (("network={kind: uniform}",), "sjf", "does not support a network"),
        (("setup={kind: moving_delay}",), "sjf", "does not support a set-up model"),
        ((), "heft", "does not support the policy 'heft'"),
        ((), "sjf[placement=fgd]", "does not support the placement 'fgd'"),
    ],
)
def test_what_the_lane_does_not_know_is_refused_before_anything_runs(
    settings: tuple[str, ...], policy: str, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        check(config("engine=compiled", *settings), [policy])
    result = run_policy(config(*settings), policy, 0)
    assert result.engine is not None
    assert result.engine.used == "simpy"


def test_without_numba_all_runs_are_simpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "is_installed", lambda: False)
    engine = run_policy(config(), "sjf", 0).engine
    assert engine == EngineUse(
        "auto", "simpy", "the compiled engine needs numba: pip install -e '.[fast]' in the checkout"
    )
    with pytest.raises(ConfigError, match="pip install"):
        check(config("engine=compiled"), ["sjf"])


def test_the_command_refuses_with_2_and_leaves_no_folder(tmp_path: Path) -> None:
    done = invoke("eval", "--policy", "heft", "--set", "engine=compiled", "-o", tmp_path)
    assert done.exit_code == 2
    assert "allowed: engine simpy or auto" in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_long_run_without_numba_is_offered_the_compiled_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = ClusterScenario(Cluster.of({"V100": 1}), [])
    slow = EngineUse("auto", "simpy", "the compiled engine needs numba")
    assert faster_engine(lambda: scenario, "sjf", slow, 31.0) == ""
    monkeypatch.setattr("dagsim.families.compiled.choice.is_installed", lambda: False)
    advice = faster_engine(lambda: scenario, "sjf[placement=worst-fit]", slow, 31.0)
    assert advice.endswith("times as fast: pip install -e '.[fast]'")
    assert faster_engine(lambda: scenario, "sjf", slow, 29.0) == ""
    assert faster_engine(lambda: scenario, "heft", slow, 31.0) == ""
    assert faster_engine(lambda: scenario, "sjf", EngineUse("simpy", "simpy", "asked for"), 31.0) == ""
    assert faster_engine(lambda: replace(scenario, admission=True), "sjf", slow, 31.0) == ""


def test_a_run_that_starts_the_compilation_says_so_at_any_length() -> None:
    scenario = ClusterScenario(Cluster.of({"V100": 1}), [])
    engine = EngineUse("auto", "simpy", BESIDE)
    assert "sjf is being compiled in the background" in faster_engine(lambda: scenario, "sjf", engine, 2.0)


def test_an_engine_describes_the_cluster_only() -> None:
    with pytest.raises(ConfigError, match="engine belongs to the system 'cluster'"):
        load_config(None, ["system={kind: spark}", "engine=simpy"])


def test_who_decides_live_cannot_have_the_compiled_engine() -> None:
    from dagsim.systems.cluster.scenario import cluster_scenario_of

    with pytest.raises(ConfigError, match="one by one"):
        cluster_scenario_of(config("engine=compiled")).kernel(0)


def test_engines_of_several_policies_are_told_by_policy() -> None:
    used = {"sjf": EngineUse("auto", "compiled", "large"), "heft": EngineUse("auto", "simpy", "unknown")}
    assert engine_of(used) == {
        "asked": "auto",
        "used": "compiled, simpy",
        "reason": "compiled for sjf: large; simpy for heft: unknown",
    }


def test_of_several_processes_one_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jit, "folder", lambda: tmp_path)
    with jit.alone():
        other = jit.Lock(tmp_path / "lock")
        assert not other.claim()
    assert other.claim()
    other.release()


def test_warm_says_what_it_compiled_and_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jit, "folder", lambda: tmp_path)
    monkeypatch.setattr(jit, "jitted", lambda: True)
    monkeypatch.setattr(drive, "is_warm", lambda plan: True)
    compiled = iter([True, False])
    monkeypatch.setattr(drive, "compile_loop", lambda plan: next(compiled))
    done = fine("warm", "--policy", "easy", "--policy", "easy-sjf")
    assert done.output.startswith("compiled advance_easy (for easy and its like) in")
    assert str(jit.folder()) in done.output.replace("\n", "")


def test_warm_needs_numba_and_a_policy_that_the_lane_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    done = invoke("warm", "--policy", "heft")
    said = " ".join(done.output.split())
    assert (done.exit_code, "policy 'heft'" in said) == (2, True)
    monkeypatch.setattr("dagsim.families.compiled.choice.find_spec", lambda name: None)
    done = invoke("warm")
    assert (done.exit_code, "pip install" in done.output) == (2, True)


def test_the_page_lists_every_policy_and_placement_that_the_engine_knows() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "engines.md").read_text(encoding="utf-8")
    plain = ClusterScenario(Cluster.of({"V100": 1}), [], engine="compiled")
    policies = [name for name in POLICIES.names() if not why_not(plain, name)]
    placements = [name for name in PLACEMENT_RULES.names() if not why_not(plain, f"sjf[placement={name}]")]
    assert len(policies) > 20
    for name in (*policies, *placements):
        assert f"`{name}`" in page or name in ("f2", "f3"), name


TRACES = {
    "alibaba2018": [f"M{task},1,j_{job},A,Terminated,{job},{job + 50},100,1" for job in range(300) for task in (1, 2)],
    "plain": [
        "id,arrival_s,gpus,duration_s,start_s,eligible_s,weight,user,tenant",
        *[f"{job},{job},1,{50 + job % 7},{job + 9},,{1 + job % 2},u{job % 3},t" for job in range(300)],
    ],
    "sacct": [
        "JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|NNodes|NCPUS|AllocTRES|NodeList",
        *[
            f"{job + 1}|u{job % 3}|a|p|q|COMPLETED|{job}|{job}|{job + 5}|{job + 60}|1|4|cpu=4,gres/gpu=2,node=1|n1"
            for job in range(300)
        ],
    ],
    "swf": [
        f"{job} {job} 0 {50 + job % 7} {1 + job % 3} -1 -1 4 60 -1 1 {job % 5} 1 -1 1 1 -1 -1" for job in range(300)
    ],
}


@pytest.mark.parametrize("name", TRACES)
def test_the_beginning_of_a_large_trace_is_read_once_in_columns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "trace"
    path.write_text("\n".join(TRACES[name]))
    settings = (f"workload={{kind: trace, format: {name}, path: {path}, options: {{limit: 20}}}}", "seeds=1")
    read = run_policy(load_config(None, settings), "sjf", 0)
    assert ("observed" in read.workload) == (name in ("plain", "sacct"))
    monkeypatch.setattr("dagsim.traces.trace._COLUMNS_FROM_B", 100)
    monkeypatch.setattr(drive, "is_warm", lambda policy: True)
    monkeypatch.setattr(type(reader(name)), "read", None)
    for engine, used in (("auto", "simpy"), ("compiled", "compiled")):
        result = run_policy(load_config(None, (*settings, f"engine={engine}")), "sjf", 0)
        assert result.engine is not None
        assert result.engine.used == used
        assert (result.schedule.log, result.schedule.jobs) == (read.schedule.log, read.schedule.jobs)
        assert result.workload == read.workload
