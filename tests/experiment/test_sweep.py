"""Sweeps: a grid in, cells by content, one folder that any kill and any executor leaves the same."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from hashlib import sha256
from math import inf
from multiprocessing import active_children
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.command_line import invoke, json_of

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, InputError, RunFolderError, SimulationError, UnknownName
from dagsim.experiment import cell as cells_module
from dagsim.experiment import process_pool as workers
from dagsim.experiment.carry_out import carry_out
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.compare import grouped_standings
from dagsim.experiment.executors import CellExecutor, CellWork, Local, Wanted, executor_for
from dagsim.experiment.plan import Plan
from dagsim.experiment.process_pool import OnProgress
from dagsim.experiment.provenance import code_digest
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import SweepGrid, axis_of, read_grid
from dagsim.metrics.standings import Sample
from dagsim.report.comparison import sweep_table

SMALL = """
set:
  cluster.groups: [{name: t4, gpu: T4, gpus: 8}]
  workload.count: 12
over:
  policy: [fifo, sjf]
  workload.load: [0.7, 0.9]
seeds: 2
"""
NOT_COMPARED = {"progress.jsonl", "timing.jsonl", "manifest.json", "status.json", "lock", "command.txt"}


def described(folder: Path, text: str = SMALL) -> SweepGrid:
    path = folder / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return read_grid(path)


class Swept(NamedTuple):
    done: dict[Cell, CellRun]
    failures: list[CellRun]
    left: int


def cells_of(grid: SweepGrid) -> list[Cell]:
    return grid.cells()


def ids_of(grid: SweepGrid) -> list[str]:
    return [cell.id for cell in grid.cells()]


def begun(grid: SweepGrid, root: Path) -> Store:
    return Store.begin(root, Plan.of_grid(grid), argv=["dagsim", "sweep"])


def swept(
    sweep: SweepGrid, root: Path, executor: CellExecutor | None = None, limit: int | None = None
) -> tuple[Store, Swept]:
    plan, folder = Plan.of_grid(sweep), begun(sweep, root)
    runs = carry_out(folder, plan, executor or Local("1"), limit=limit)
    failures = [run for run in runs.values() if run.error]
    done = {cell: run for cell, run in runs.items() if not run.error}
    return folder, Swept(done, failures, len(plan.cells) - len(runs))


def content(path: Path) -> dict[str, bytes]:
    files = [file for file in path.rglob("*") if file.is_file() and file.name not in NOT_COMPARED]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


class Backwards:
    """An executor that runs the last cell first."""

    def run(
        self, work: CellWork, cells: Sequence[Cell], on_progress: OnProgress | None = None, wanted: Wanted | None = None
    ) -> Iterator[CellRun]:
        yield from (work(cell, lambda count: None) for cell in reversed(cells))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("whole")
    return swept(described(root), root)[0]


def test_a_stopped_sweep_goes_on_to_the_same_bytes_in_any_order(whole: Store, tmp_path: Path) -> None:
    sweep = described(tmp_path)
    folder, first = swept(sweep, tmp_path, Backwards(), limit=3)
    assert (len(first.done), first.left, folder.state) == (3, 5, "interrupted")
    (folder.path / "cells" / ".0000.json.part").write_text("half", encoding="utf-8")
    with (folder.path / "progress.jsonl").open("a") as file:
        file.write('{"event": "do')
    folder, second = swept(sweep, tmp_path, Backwards())
    assert (second.left, folder.state) == (0, "done")
    assert content(folder.path) == content(whole.path)
    events = [entry["event"] for entry in folder.progress()]
    assert events == ["started", *["done"] * 3, "ended", "started", *["done"] * 5, "ended"]


def test_a_grown_grid_runs_only_what_is_new(whole: Store, tmp_path: Path) -> None:
    first, _ = swept(described(tmp_path), tmp_path)
    swept(described(tmp_path, SMALL.replace("[0.7, 0.9]", "[0.7, 0.8, 0.9]")), tmp_path)
    assert [entry for entry in first.progress() if entry["event"] == "started"][-1]["to_run"] == 4
    assert set(content(whole.path)) < set(content(first.path))


def test_an_id_is_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {cell.id for cell in cells_of(described(tmp_path))}
    spelled = (
        SMALL.replace("seeds: 2", "seeds: 2\nkeep: jobs\nmetrics: [wait_s.mean]")
        .replace("0.7,", "0.70,")
        .replace("gpus: 8", "gpus: 8, cpus: 0")
    )
    assert {cell.id for cell in cells_of(described(tmp_path, spelled))} == ids
    assert not ids & {cell.id for cell in cells_of(described(tmp_path, SMALL.replace("12", "13")))}
    monkeypatch.setattr(cells_module, "code_digest", lambda: "another version")
    assert not ids & {cell.id for cell in cells_of(described(tmp_path))}


def test_a_trace_counts_by_what_it_holds(tmp_path: Path) -> None:
    text = "base: small.config\nset: {cluster.groups: [{name: t4, gpu: T4, gpus: 8}]}\nover: {policy: [fifo]}\n"
    rows = "id,arrival_s,gpus,duration_s\n" + "".join(f"j{n},{n},1,5\n" for n in range(6))
    ids = []
    for name, content in (("one.csv", rows), ("moved.csv", rows), ("one.csv", rows.replace(",5\n", ",6\n"))):
        (tmp_path / name).write_text(content, encoding="utf-8")
        (tmp_path / "small.config").write_text(f"workload: {{kind: trace, path: {tmp_path / name}}}\nseeds: 1\n")
        ids.append([cell.id for cell in cells_of(described(tmp_path, text))])
    assert ids[0] == ids[1] != ids[2]


def test_the_manifest_has_the_digest_of_every_trace_of_an_axis(tmp_path: Path) -> None:
    for name, seconds in (("one.csv", 5), ("two.csv", 6)):
        (tmp_path / name).write_text(f"id,arrival_s,gpus,duration_s\na,0,1,{seconds}\n", encoding="utf-8")
    (tmp_path / "base.yaml").write_text(
        f"workload: {{kind: trace, path: {tmp_path / 'one.csv'}}}\n"
        "cluster: {groups: [{name: t4, gpu: T4, gpus: 8}]}\nseeds: 1\n"
    )
    over = f"workload.path: [{tmp_path / 'one.csv'}, {tmp_path / 'two.csv'}]"
    plan = Plan.of_grid(described(tmp_path, f"base: base.yaml\nover: {{{over}}}\n"))
    recorded = Store.begin(tmp_path, plan, argv=["dagsim"]).manifest["traces"]
    assert {Path(name).name: fact["sha256"] for name, fact in recorded.items()} == {
        name: sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("one.csv", "two.csv")
    }


def test_a_trace_is_not_run_on_the_default_cluster(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("id,arrival_s,gpus,duration_s\na,0,1,5\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text(f"workload: {{kind: trace, path: {tmp_path / 'log.csv'}}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no cluster is given"):
        cells_of(described(tmp_path, "base: b.yaml\nover: {policy: [fifo]}\n"))


class SlowWork(CellWork):
    """Takes its time, so that workers are killed while cells are left."""

    def __call__(self, cell: Cell, tell: Callable[[int], None]) -> CellRun:
        run = super().__call__(cell, tell)
        time.sleep(0.3)
        return run


@pytest.mark.parametrize("kills", [1, 2])
def test_a_worker_killed_by_sigkill_leaves_a_sweep_that_goes_on_to_the_same_bytes(
    kills: int, whole: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, dead = workers._Pool.is_ready, []

    def first_ready(pool: workers._Pool[Cell, CellRun]) -> bool:
        while not ready(pool):
            time.sleep(0.01)
        return True

    class Killing(Local):
        """Kills the workers once the first outcome of theirs is there; what is left needs none."""

        def run(
            self,
            work: CellWork,
            cells: Sequence[Cell],
            on_progress: OnProgress | None = None,
            wanted: Wanted | None = None,
        ) -> Iterator[CellRun]:
            if not dead:
                work = SlowWork(*(getattr(work, part.name) for part in fields(work)))
            for outcome in super().run(work, cells, on_progress, wanted):
                yield outcome
                if not dead:
                    dead.extend([child.pid for child in active_children() if child.pid is not None])
                    for pid in dead:
                        os.kill(pid, signal.SIGKILL)
                    monkeypatch.setattr(workers, "_WORTH_S", inf)

    monkeypatch.setattr(workers, "_WORTH_S", -1.0)
    monkeypatch.setattr(workers._Pool, "is_ready", first_ready)
    monkeypatch.setattr("dagsim.experiment.process_pool._KILLS", kills)
    sweep = described(tmp_path)
    if kills == 1:  # the first is one too many: the sweep ends, and the same command goes on with it
        with pytest.raises(SimulationError, match="signal 9"):
            swept(sweep, tmp_path, Killing("2"))
        cells = cells_of(sweep)
        stopped = Store.open(tmp_path / "sweep-small")
        assert 0 < len(stopped.done(cells)) < len(cells)
        assert stopped.state == "failed"
    folder, result = swept(sweep, tmp_path, Killing("2"))
    assert len(dead) == 2
    assert (result.left, folder.state) == (0, "done")
    assert content(folder.path) == content(whole.path)


def test_other_commands_read_it_as_a_run_folder(whole: Store) -> None:
    opened = Store.open(whole.path)
    assert opened.state == "done"
    assert [(line.policy, line.seed) for line in opened.lines()][:2] == [
        ("fifo @ load=0.7", 0),
        ("fifo @ load=0.7", opened.lines()[1].seed),
    ]
    assert len(opened.lines()) == 8
    assert {line.id for line in Store.open(whole.path).cells()} == {cell.id for cell in cells_of(whole.sweep)}


def test_the_table_compares_within_a_group(whole: Store) -> None:
    cells = cells_of(whole.sweep)
    done = whole.done(cells)
    groups = grouped_standings([done[cell] for cell in cells], whole.sweep.axes, "jct_s.mean")
    assert [group.at for group in groups] == [{"load": "0.7"}, {"load": "0.9"}]
    for group in groups:
        values = {
            label: [
                done[cell].metrics["jct_s.mean"] for cell in cells if cell.label == f"{label} @ load={group.at['load']}"
            ]
            for label in ("fifo", "sjf")
        }
        (sjf,) = [standing for standing in group.standings if standing.policy == "sjf"]
        assert sjf.pair is not None
        ratios = [a / b for a, b in zip(values["sjf"], values["fifo"], strict=True)]  # type: ignore[operator]
        assert sjf.pair.ratio == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
        assert next(standing for standing in group.standings if standing.is_reference).policy == "fifo"
    grid = sweep_table(groups, whole.sweep.axes, whole.sweep.metrics, name="small", sample=Sample.SEED)
    assert grid.heads[:2] == ("load", "policy")
    assert any("too few seeds" in note for note in grid.notes)


def test_half_a_sweep_is_compared_on_the_seeds_that_all_have(tmp_path: Path) -> None:
    sweep = described(tmp_path, SMALL.replace("workload.load: [0.7, 0.9]", "workload.load: [0.9]"))
    _, result = swept(sweep, tmp_path, limit=3)  # fifo on both seeds, sjf on the first
    (group,) = grouped_standings(list(result.done.values()), sweep.axes, "jct_s.mean")
    assert {standing.pair.n for standing in group.standings if standing.pair is not None} == {1}


def test_a_policy_that_fails_leaves_the_others_their_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "never_decides.py").write_text("class No:\n    def decide(self, view):\n        raise KeyError('no')\n")
    monkeypatch.syspath_prepend(tmp_path)
    folder, result = swept(described(tmp_path, SMALL.replace("sjf", "never_decides:No")), tmp_path)
    assert (len(result.done), len(result.failures), folder.state) == (4, 4, "failed")
    assert "KeyError" in result.failures[0].error
    assert [entry["event"] for entry in folder.progress()].count("failed") == 4


def test_a_log_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    folder, _ = swept(described(tmp_path, SMALL + "keep: log\n"), tmp_path, limit=1)
    (cell,) = (folder.path / "cells").glob("*.json")
    assert {file.name for file in cell.parent.iterdir()} == {
        f"{cell.stem}.{ending}" for ending in ("json", "json.gz", "npy", "jobs.csv.gz", "tasks.csv.gz")
    }


def test_a_worker_of_another_version_refuses(tmp_path: Path) -> None:
    cell = cells_of(described(tmp_path))[0]
    with pytest.raises(RunFolderError, match="have different versions of dagsim"):
        CellWork(code="0" * 64)(cell, lambda count: None)


@pytest.mark.parametrize("changed", ["model,gpu\nbert,T4\n", None], ids=["another table", "no table"])
def test_a_worker_with_other_files_refuses(changed: str | None, tmp_path: Path) -> None:
    table = tmp_path / "rates.csv"
    table.write_text("model,gpu\n")
    cell = Cell(load_config(None, [f"runtime={{kind: throughput, table: {table}}}"]), "fifo", 0, "fifo")
    sent = pickle.dumps(cell)
    if changed is None:
        table.unlink()
    else:
        table.write_text(changed)
    with pytest.raises(RunFolderError, match="is missing on this worker, or differs"):
        CellWork(code=code_digest())(pickle.loads(sent), lambda count: None)


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    sweep = described(tmp_path)
    held = begun(sweep, tmp_path)
    with pytest.raises(RunFolderError, match="another process"):
        begun(sweep, tmp_path)
    held.finish("interrupted")


def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    sweep = read_grid(_written(tmp_path, SMALL), "../../etc/x")
    folder = begun(sweep, tmp_path / "out")
    assert folder.path.resolve().parent == (tmp_path / "out").resolve()
    folder.finish("interrupted")


@pytest.mark.parametrize(
    ("seeds", "numbers"),
    [("{first: 3020000, count: 3}", [3020000, 3020001, 3020002]), ("[1234, 1, 2]", [1, 2, 1234])],
)
def test_seeds_can_be_given_one_by_one_or_by_the_first_and_their_number(
    seeds: str, numbers: list[int], tmp_path: Path
) -> None:
    sweep = described(tmp_path, SMALL.replace("seeds: 2", f"seeds: {seeds}"))
    folder, result = swept(sweep, tmp_path, limit=1)
    assert sorted({cell.seed for cell in cells_of(sweep)}) == numbers
    assert ids_of(Store.open(folder.path).sweep) == ids_of(sweep)
    assert result.left == 11


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("over:", "ovr:"), "unknown key 'ovr'; did you mean 'over'"),
        (("[fifo, sjf]", "fifo"), "over.policy: expected a list"),
        (("[fifo, sjf]", "[]"), "over.policy: the list is empty; give at least one value"),
        (("[fifo, sjf]", "[fifo, fifo]"), "'fifo' is listed twice"),
        (("[0.7, 0.9]", "{from: 2, to: 1}"), "'to' must not be below 'from'"),
        (("[0.7, 0.9]", "{from: 0, to: 1.0e+9, step: 0.001}"), "at most 100,000"),
        (("seeds: 2", "seeds: 0"), "seeds: expected"),
        (("seeds: 2", "seeds: {first: 7}"), "{first: 100, count: 5}, got {'first': 7}"),
        (("seeds: 2", "seeds: {first: -1, count: 2}"), "seeds: expected"),
        (("seeds: 2", "seeds: [1, 1]"), "seeds: expected"),
        (("seeds: 2", "seeds: {first: 0, count: 2000000}"), "at most 1,000,000 cells are allowed"),
        (("seeds: 2", "metrics: [jct.mean]"), "there is no metric 'jct.mean'"),
        (("workload.load", "workload.loud"), "loud"),
        (("set:", "base: nowhere.yaml\nset:"), ": base: nowhere.yaml: no such file or configuration"),
    ],
)
def test_a_wrong_grid_is_refused_by_its_place(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        cells_of(described(tmp_path, SMALL.replace(*change)))


def test_executors_go_by_name() -> None:
    local = executor_for("local:3")
    assert isinstance(local, Local)
    assert local.workers == 3
    with pytest.raises(UnknownName, match="did you mean 'local'"):
        executor_for("locl")
    for text in ("local:0", "local:x", "local:99999"):
        with pytest.raises(ConfigError, match="number of processes"):
            executor_for(text)


def test_workers_that_always_die_end_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> Iterator[CellRun]:
        raise SimulationError("a worker process was killed")
        yield

    monkeypatch.setattr("dagsim.experiment.executors.in_order", killed)
    with pytest.raises(SimulationError, match="was killed"):
        list(Local("2").run(CellWork(), cells_of(described(tmp_path))))


def _written(folder: Path, text: str) -> Path:
    path = folder / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_results_are_sorted_by_id(whole: Store) -> None:
    rows = (whole.path / "results.csv").read_text().splitlines()
    ids = [row.split(",")[0] for row in rows[1:]]
    assert ids == sorted(ids)
    assert len(ids) == 8
    first = json.loads((whole.path / "cells" / f"{ids[0]}.json").read_text())
    assert str(first["metrics"]["jct_s.mean"]) in rows[1]


@pytest.mark.family("decima")
def test_a_kept_network_is_a_policy_of_a_sweep(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "dagsim" / "families" / "decima" / "w2.pt"
    (tmp_path / "spark.yaml").write_text("system: {kind: spark, executors: 3, jobs: 1}\n", encoding="utf-8")
    grid = described(tmp_path, f"base: {tmp_path}/spark.yaml\nover: {{policy: [fifo, {{file: {path}}}]}}\nseeds: 1\n")
    _, ran = swept(grid, tmp_path)
    assert not ran.failures
    assert [cell.policy for cell in ran.done] == ["fifo", f'decima[checkpoint="{path}"]']


@pytest.mark.parametrize("value", [{}, {"from": 4}, {"to": 4, "step": 2}, {"from": 1, "to": 2, "by": 1}, 3])
def test_an_axis_in_another_form_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="over: expected a list of values"):
        axis_of("x", value, "over")


def test_an_axis_has_the_steps_or_labels_that_are_given() -> None:
    assert axis_of("x", {"from": 4, "to": 9, "step": 2}, "x").values == (4, 6, 8)
    assert axis_of("x", {"from": 1, "to": 3}, "x").labels == ("1", "2", "3")
    labelled = axis_of("x", {"few": 1, "many": 9}, "x")
    assert (labelled.labels, labelled.values) == (("few", "many"), (1, 9))


def test_a_plan_is_labelled_by_its_policy_or_by_their_number() -> None:
    config = load_config(None, ["seeds=2"])
    assert Plan.of("eval", config, ["sjf"]).label == "sjf"
    assert Plan.of("eval", config, ["sjf", "fifo"]).label == "2-policies"
    assert [(cell.seed, cell.policy) for cell in Plan.of("eval", config, ["sjf", "fifo"], [7, 9]).cells] == [
        (7, "sjf"),
        (7, "fifo"),
        (9, "sjf"),
        (9, "fifo"),
    ]


def test_each_cell_of_an_axis_base_has_a_configuration_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "few.yaml").write_text("workload: {preset: heterogeneous, count: 3, load: 0.5}\n")
    (tmp_path / "more.yaml").write_text("workload: {preset: heterogeneous-dag, count: 5}\n")
    file = tmp_path / "bases.yaml"
    file.write_text(
        "over:\n  base: [few.yaml, more.yaml]\n  policy: [sjf, fifo]\nset: {workload.load: 0.7}\nseeds: 1\n"
    )
    cells = read_grid(file).cells()
    assert [(cell.at["base"], cell.policy, cell.config.workload.count) for cell in cells] == [
        ("few", "sjf", 3),
        ("few", "fifo", 3),
        ("more", "sjf", 5),
        ("more", "fifo", 5),
    ]
    assert {cell.config.workload.load for cell in cells} == {0.7}
    file.write_text("over: {base: [none.yaml]}\n")
    with pytest.raises(InputError, match=r"none\.yaml"):
        read_grid(file)


def test_a_dry_run_lists_the_cells_and_runs_none(tmp_path: Path) -> None:
    cells = cells_of(described(tmp_path))
    command = ["sweep", str(tmp_path / "small.yaml"), "--dry-run", "-o", str(tmp_path / "runs")]
    text = invoke(*command).output
    assert text.splitlines()[-1] == "8 cells"
    listed = json_of(*command)
    assert [(row["cell"], row["what"], row["seed"]) for row in listed] == [
        (cell.id, cell.label, cell.seed) for cell in cells
    ]
    assert invoke(*command, "--quiet").output == ""
    assert not (tmp_path / "runs").exists()


def test_only_the_runs_of_a_grid_carry_the_id_of_their_cell(tmp_path: Path) -> None:
    cell = cells_of(described(tmp_path))[0]
    assert CellWork()(cell, lambda count: None).id == ""
    assert CellWork(named=True)(cell, lambda count: None).id == cell.id


def test_a_misspelt_key_of_a_sweep_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("base: default\nover:\n  workload.laod: [0.5, 0.7]\n", encoding="utf-8")
    shown = invoke("sweep", tmp_path / "sweep.yaml", "--out", tmp_path)
    said = " ".join(shown.output.split())
    assert "sweep.yaml:3:18: over.workload.laod: there is no such key; did you mean 'load'?" in said
