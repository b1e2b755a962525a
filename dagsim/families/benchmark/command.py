"""The commands ``dagsim bench``, a frozen benchmark for schedulers to which anybody can submit
entries, and ``dagsim paper``, which prints the published results of a paper next to those of
dagsim.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dagsim.cli.app import App, app, say
from dagsim.cli.configuring import trust
from dagsim.cli.options import Json, On, Out, Quiet, TableLook, page_name
from dagsim.cli.running import carried
from dagsim.families.benchmark import services
from dagsim.report.grid import TableFormat
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.experiment.cell import Cell
    from dagsim.experiment.cell_run import CellRun
    from dagsim.experiment.store import Store
    from dagsim.families.benchmark.suite import BenchEntry, BenchTask

bench_app = App(help="Evaluate a scheduler on a frozen suite of tasks.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")


Tasks = Annotated[
    list[str] | None, typer.Option("--task", metavar="NAME", help="Run only this task (repeatable; default: all).")
]


@bench_app.command("tasks")
def show_tasks(json_: Json = False) -> None:
    """List the tasks of the suite with their references and metrics.

    Example: dagsim bench tasks
    """
    from dagsim.families.benchmark.suite import suite
    from dagsim.report.terminal import show

    _name_missing_tasks()
    rows = [(task.name, task.summary, task.config.policy, task.metric) for task in suite()]
    show(("task", "what it is", "reference", "metric"), rows, json_)


def _name_missing_tasks() -> None:
    """Print a line for each task that is left out because this installation lacks its system."""
    from dagsim.families.benchmark.suite import tasks_without_family

    for name, reason in tasks_without_family().items():
        say(f"task {name} left out: {reason}", err=True)


@bench_app.command("run")
def run_bench(
    policy: Annotated[
        str | None,
        typer.Option("--policy", "-a", metavar="NAME", help="Policy for the benchmark's tasks on the GPU cluster."),
    ] = None,
    spark: Annotated[str | None, typer.Option(metavar="NAME", help="Policy for the task on Spark.")] = None,
    ramp: Annotated[str | None, typer.Option(metavar="NAME", help="Policy for the task on RAMP.")] = None,
    division: Annotated[
        Literal["exact", "noisy", "hidden"], typer.Option(help="What policies know about durations.")
    ] = "exact",
    draw: Annotated[
        int | None,
        typer.Option("--test-seed", min=0, metavar="NUMBER", help="Use the test seeds derived from this number."),
    ] = None,
    task: Tasks = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds per task (default: 10).")] = None,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound", help="Add proven lower bounds, for tasks for which they can be computed. This takes minutes."
        ),
    ] = False,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the entry (default: the names of the policies).")
    ] = None,
    on: On = "local",
    out: Out = Path("results"),
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a policy and the reference policies on all tasks, and write one file with hashes and
    scores.

    Without --test-seed, the public seeds for development are used. Repeat the same command to
    continue a stopped run.

    Example: dagsim bench run --policy easy-sjf --spark fair --task dags --seeds 2
    """
    from dagsim.errors import InputError
    from dagsim.experiment.executors import executor_for
    from dagsim.experiment.folder_files import slug
    from dagsim.experiment.simulate import agent_spec
    from dagsim.families.benchmark.entries import entry_file
    from dagsim.families.benchmark.page import entry_grid
    from dagsim.families.benchmark.suite import BenchEntry, bounds_of
    from dagsim.files import write_text
    from dagsim.report.terminal import counted, show_grid
    from dagsim.systems import system_named

    watched = not (quiet or json_)
    chosen = {"cluster": policy, "spark": spark, "ramp": ramp}
    policies = {
        system: agent_spec(spec, system=system_named(system)) for system, spec in chosen.items() if spec is not None
    }
    if not policies:
        raise InputError("bench run: give --policy NAME (for the GPU cluster), --spark NAME or --ramp NAME")
    _name_missing_tasks()
    trust()
    executor_for(on)
    label = name or " ".join(dict.fromkeys(spec for spec in chosen.values() if spec is not None))
    entry = BenchEntry(label, policies, division, draw, seeds)
    tasks = entry.tasks(task or ())
    where = f"{division}-{'dev' if draw is None else draw}"
    runs = _run_tasks(entry, tasks, out / f"bench-{where}", on, watched=watched)
    store, _ = next(reversed(runs.values()))
    with store.noting():
        bounds = bounds_of(tasks, entry, counted("bounding", watched, "seeds", every=1)) if bound else {}
        content = entry_file(entry, tasks, runs, bounds)
        path = out / f"bench-{slug(label, 60)}-{where}.json"
        write_text(path, json.dumps(content) + "\n")
        if json_:
            facts = {"score": content["score"], "scores": content["scores"], "missing": content["missing"]}
            say(json.dumps({"file": str(path), **facts}))
        elif not quiet:
            show_grid(entry_grid(content), TableFormat.TEXT)
            say(f"entry: {path}")


def _run_tasks(
    entry: BenchEntry, tasks: Iterable[BenchTask], folder: Path, on: str, *, watched: bool
) -> dict[str, tuple[Store, dict[Cell, CellRun]]]:
    """Run the tasks of an entry, and return the run folder and the cells of each task. All entries
    share the folders, so that the references run only once.

    Raises:
        InputError: A cell failed.
    """
    from dagsim.errors import InputError
    from dagsim.experiment.carry_out import check_plan
    from dagsim.experiment.store import Store
    from dagsim.families.benchmark.suite import task_plan

    plans = {one.name: task_plan(one, entry) for one in tasks}
    for plan in plans.values():
        check_plan(plan)
    runs = {}
    for number, (name, plan) in enumerate(plans.items(), 1):
        if watched:
            say(f"task {number} of {len(plans)}: {name}", err=True)
        store = Store.begin(folder, plan, argv=["dagsim", *sys.argv[1:]])
        done = carried(store, plan, on, watched=watched).runs
        if broken := next((run.error for run in done.values() if run.error), None):
            raise InputError(f"task {name}: {broken}")
        runs[name] = store, done
    return runs


@bench_app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A benchmark entry.")],
    sample: Annotated[int, typer.Option(min=1, help="Number of runs to repeat.")] = 12,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed with which the runs are chosen (default: a new seed, which is printed)."),
    ] = None,
    on: On = "local",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a sample of an entry's runs, and compare logs, metrics, hashes and scores. The exit
    code is 1 if anything differs.

    Example: dagsim bench verify bench-mine-exact-dev.json --sample 2
    """
    from dagsim.experiment.executors import executor_for
    from dagsim.families.benchmark.checking import repeated_runs
    from dagsim.families.benchmark.entries import of_other_code, read_entry
    from dagsim.own_code import allowed

    content, executor = read_entry(file), executor_for(on)
    if (names := allowed()) is not None:
        names.trust_recorded(file, {name: fact["sha256"] for name, fact in content["code"].items()})
    if of_other_code(content):
        say(
            f"{file}: made by a different version of the simulation code (dagsim {content['dagsim']}), so only "
            "repeating its runs can verify it",
            err=True,
        )
    number = secrets.randbelow(2**32) if seed is None else seed
    repeated, differences = repeated_runs(content, sample, number, executor)
    if json_:
        say(json.dumps({"file": str(file), "repeated": repeated, "seed": number, "differences": differences}))
    elif not quiet or differences:
        for difference in differences:
            say(f"differs: {difference}")
        verdict = f"{len(differences)} differences" if differences else "equal"
        say(f"{file}: {count_of(repeated, 'run')} repeated (--seed {number}): {verdict}")
    if differences:
        raise typer.Exit(1)


@bench_app.command("table")
def tabulate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Benchmark entries.")],
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=page_name, help="Also write the leaderboard as an HTML page."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the leaderboard as Markdown.")
    ] = None,
    table: TableLook = TableFormat.TEXT,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print a leaderboard of several entries, with one table per division. It can also be written
    as an HTML page and as Markdown.

    Example: dagsim bench table bench-mine-exact-dev.json --html leaderboard.html
    """
    from dagsim.errors import InputError
    from dagsim.families.benchmark.entries import read_entry
    from dagsim.families.benchmark.page import leaderboards
    from dagsim.files import write_text
    from dagsim.report.terminal import show_grid

    if html is not None and (reason := services.page_of_tables.missing()):
        raise InputError(f"--html: no page can be written, because the writer of pages {reason}")
    grids = leaderboards([read_entry(file) for file in files])
    if markdown is not None:
        write_text(markdown, "\n\n".join(grid.markdown() for grid in grids) + "\n")
    if html is not None:
        write_text(html, services.page_of_tables("Leaderboard of the benchmark", grids))
    if json_:
        say(
            json.dumps(
                [
                    {"title": grid.title, "rows": [dict(zip(grid.heads, row, strict=True)) for row in grid.rows]}
                    for grid in grids
                ]
            )
        )
    elif not quiet:
        for grid in grids:
            show_grid(grid, table)


@app.command("paper")
def repeat_paper(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The paper to reproduce (default: list the papers).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help=("Folder with the paper's files (default: DAGSIM_DATA, or the current folder).")
        ),
    ] = None,
    json_: Json = False,
    table: TableLook = TableFormat.TEXT,
) -> None:
    """Print the published results of a paper next to those simulated by dagsim, with the differences.
    The exit code is 1 if a difference is larger than allowed.

    Example: dagsim paper
    """
    from dagsim.families.benchmark.papers import PAPERS, paper
    from dagsim.report.grid import Grid
    from dagsim.report.terminal import counted, show, show_grid

    if name is None:
        show(("paper", "what it is", "files"), [(key, of.title, of.source) for key, of in PAPERS.items()], json_)
        return
    chosen = paper(name)
    files = chosen.located(data or Path(os.environ.get("DAGSIM_DATA", ".")))
    figures = list(counted("simulating", not json_, "values", every=1)(chosen.figures(files)))
    absent = [file for file in chosen.files if file not in files]
    missed = [figure for figure in figures if not figure.holds]
    if json_:
        facts: list[dict[str, object]] = [
            {**figure._asdict(), "difference": figure.difference, "holds": figure.holds} for figure in figures
        ]
        say(json.dumps({"paper": name, "title": chosen.title, "figures": facts, "missing": absent}))
    else:
        rows = [
            (
                *(of.name, f"{of.published:,.6g}", f"{of.here:,.6g}", f"{of.difference:.2g}", f"{of.tolerance:.2g}"),
                "" if of.holds else "differs",
            )
            for of in figures
        ]
        heads = ("value", "published", "here", "difference", "allowed", "")
        note = f"{len(figures) - len(missed)} of {len(figures)} values differ by no more than is allowed"
        notes = (note, f"not below {data or '.'}: {', '.join(absent)}. {chosen.source}") if absent else (note,)
        show_grid(Grid(chosen.title, heads, rows, notes, texts=(0, 5)), table)
    if missed:
        raise typer.Exit(1)
