"""Commands for the inputs of an experiment: ``dagsim config``, ``workload`` and ``list``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import App, app, say
from dagsim.cli.configuring import configured, doubt_of, given
from dagsim.cli.options import ConfigFile, Json, OutFile, Seed, Settings, one_output
from dagsim.errors import InputError
from dagsim.report.listings import LISTINGS, listing
from dagsim.text import count_of

config_app = App(help="Show, check and describe configurations.", no_args_is_help=True)
app.add_typer(config_app, name="config")


@config_app.command("show")
def config_show(config: ConfigFile = None, set_: Settings = None) -> None:
    """Print the whole configuration as YAML, including defaults.

    Example: dagsim config show --set cluster.groups.0.count=4
    """
    from dagsim.config.dumping import dump_config

    say(*dump_config(configured(config, set_, own=False)).rstrip("\n").split("\n"))


@config_app.command("check")
def config_check(
    files: Annotated[
        list[str], typer.Argument(metavar="YAML...", help="Files, run folders, or names from `dagsim list configs`.")
    ],
) -> None:
    """Check configurations, and report every error with its line, key and remedy.

    The check does not import any code from outside dagsim and does not start any program.

    Example: dagsim config check my.yaml
    """
    from dagsim.config.bundled import find_config
    from dagsim.config.dumping import foreign_parts, plain
    from dagsim.config.yaml import read_yaml
    from dagsim.errors import CodeNotAllowed, ConfigError
    from dagsim.experiment.scenario import scenario_of
    from dagsim.experiment.simulate import check
    from dagsim.model.gpu import canonical
    from dagsim.own_code import own_names

    faults: list[str] = []
    for file in files:
        try:
            config = configured(file, None, own=False)
            path = find_config(file)
            written = read_yaml(path).value if path is not None and path.is_file() else {}
            unchecked = foreign_parts(config)
            if not unchecked:  # a scenario can be built only from parts that dagsim may import
                check(config, (config.policy,))
                # a configuration without a workload describes a site, whose jobs come from a log
                if isinstance(written, dict) and "workload" in written:
                    scenario_of(config).check_jobs(config.seed)
                # the rewards, baselines and estimators of a training run are imported only when the
                # run starts
                unchecked = own_names(json.dumps(plain(config).get("train")))
        except CodeNotAllowed:
            unchecked = [config.policy]
        except InputError as error:
            faults += [fault if str(fault).startswith(file) else f"{file}: {fault}" for fault in error.args]
            continue
        short = ", ".join({f"{gpu} means {full}": 0 for gpu in _gpus_in(written) if (full := canonical(gpu)) != gpu})
        if written is None:
            say(f"{file}: fine (empty: every value is the default)")
        elif doubt := doubt_of(config):
            say(f"{file}: valid, but {doubt}")
        elif unchecked:
            say(f"{file}: valid, but code outside dagsim was not checked: {', '.join(unchecked)}")
        else:
            say(f"{file}: fine ({short})" if short else f"{file}: fine")
    if faults:
        raise ConfigError(*faults)


def _gpus_in(value: object) -> Iterator[str]:
    """Yield the GPU types named in a configuration's groups of nodes."""
    if isinstance(value, dict):
        if isinstance(name := value.get("gpu"), str):
            yield name
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _gpus_in(part)


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON Schema for configurations, for editors.

    Example: dagsim config schema > dagsim.schema.json
    """
    from dagsim.config.schema import json_schema

    say(*json.dumps(json_schema(described=True), indent=2).splitlines())


workload_app = App(help="Describe and save workloads.", no_args_is_help=True)
app.add_typer(workload_app, name="workload")


@workload_app.command("info")
def show_workload(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A name from `dagsim list workloads`, or a file (default: as configured)."
        ),
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seed: Seed = None,
    json_: Json = False,
) -> None:
    """Describe a workload: the sizes and shapes of its jobs, their arrivals, and the offered load.

    Example: dagsim workload info heterogeneous-dag
    """
    from dagsim.experiment.scenario import workload_label
    from dagsim.report.tables import info_tables, workload_notes
    from dagsim.report.terminal import console
    from dagsim.systems.cluster.scenario import cluster_scenario_of
    from dagsim.workload import workload_info

    chosen = configured(config, set_, given(seed=seed), workload, named="NAME")
    cluster = chosen.build_cluster()
    jobs = cluster_scenario_of(chosen).jobs(chosen.seed)
    info = workload_info(jobs, cluster, chosen.runtime, whole=jobs.are_whole)
    if json_:
        say(
            json.dumps(
                {
                    "workload": workload or workload_label(chosen),
                    "cluster": str(cluster),
                    **info.to_dict(),
                    **jobs.facts(),
                }
            )
        )
        return
    console().print(*info_tables(info), sep="\n")
    for note in workload_notes([jobs.facts()]):
        say(note)


@workload_app.command("save")
def workload_save(
    workload: Annotated[str, typer.Argument(help="A name from `dagsim list workloads`, or a file.")],
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT]",
            help="The JSON Lines file to write, compressed if its name ends in .gz. You can also use --out.",
        ),
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seed: Seed = None,
    out: OutFile = None,
) -> None:
    """Write the jobs of a workload to a file that you can replay.

    Example: dagsim workload save steady steady.jsonl.gz --seed 3
    """
    from dagsim.config.dumping import plain
    from dagsim.systems.cluster.scenario import cluster_scenario_of
    from dagsim.workload.records import write_jobs

    path = one_output(path, out)
    chosen = configured(config, set_, given(seed=seed), workload, named="NAME")
    jobs = cluster_scenario_of(chosen).jobs(chosen.seed)
    meta = {key: plain(getattr(chosen, key)) for key in ("workload", "runtime", "cluster", "seed")}
    if jobs.begins_s:
        meta["begins_s"] = jobs.begins_s
    say(f"{count_of(write_jobs(path, jobs, meta), 'job')} written to {path}")


def _known(what: str) -> str:
    if what not in LISTINGS:
        from dagsim.spelling import choices

        raise InputError(f"there is no list {what!r}{choices(what, LISTINGS)} (dagsim list --help)")
    return what


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"One of {', '.join(LISTINGS)}.", callback=_known)],
    json_: Json = False,
) -> None:
    """List the names that you can use: policies, workloads, GPUs, metrics and more.

    Example: dagsim list policies
    """
    from dagsim.report.terminal import show

    show(*listing(what), as_json=json_)
