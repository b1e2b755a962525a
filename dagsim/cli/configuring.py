"""Build the configuration of an experiment from the options of a command, and check it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagsim import services
from dagsim.cli.app import say
from dagsim.cli.options import Experiment, TraceFlags, WindowCount

if TYPE_CHECKING:
    from dagsim.config.schema import Config
    from dagsim.config.yaml import Setting
    from dagsim.systems.cluster.audit.audit import Audit


def trust(*files: Path) -> None:
    """Allow this command to import the code that the user names on the command line and in
    ``files`` (YAML).

    If a file is in a run folder, only code with the SHA-256 recorded there is allowed.
    """
    from dagsim.config.yaml import read_yaml
    from dagsim.own_code import allowed

    names = allowed()
    if names is None:
        return
    names.trust_command_line()
    for file in files:
        if (file.parent / "manifest.json").is_file():
            from dagsim.experiment.store import recorded_code

            names.trust_recorded(file.parent, recorded_code(file.parent))
        else:
            names.trust_values(read_yaml(file).value)


def configured(
    file: str | None,
    settings: Iterable[str | Setting] | None,
    options: Iterable[Setting] = (),
    workload: str | None = None,
    *,
    named: str = "--workload",
    own: bool = True,
) -> Config:
    """Return the configuration in ``file`` with the workload, the values of ``--set`` and the other
    options applied to it, in this order.

    ``named`` is the option or argument that gives the workload. If ``own`` is False, no code
    outside dagsim is imported. This is meant for commands that run nothing.
    """
    from dagsim.config.bundled import find_config
    from dagsim.config.schema import load_config
    from dagsim.config.yaml import Option, Setting

    path = None if file is None else find_config(file, "the workload: --workload ")
    if own:
        trust(*([] if path is None else [path]))
    jobs = [] if workload is None else [Setting(Option.of(named, workload), "workload", workload)]
    return load_config(path, [*jobs, *(settings or ()), *options], own=own)


_MOST_LOAD = 10


def doubt_of(config: Config) -> str:
    """Return a warning if the load is probably a percentage, or else an empty text."""
    load = getattr(config.workload, "load", None)
    if load is None or load < _MOST_LOAD:
        return ""
    return f"workload.load is {load:g}, {load:g} times the cluster's capacity; for {load:g}%, write {load / 100:g}"


def experiment(
    what: Experiment,
    trace: TraceFlags,
    policy: str | None = None,
    *,
    windows: WindowCount | None = None,
    first: Sequence[Setting] = (),
    more: Sequence[Setting] = (),
    watched: bool,
    invented: bool = True,
) -> Config:
    """Return the configuration described by the options of a command.

    ``first`` is applied before ``--set``, so that ``--set`` can change keys of the parts that it
    selects. ``more`` is applied after ``--set``. If the workload is a trace,
    ``scenario.on_its_cluster`` chooses the cluster. If ``invented`` is False, no cluster is made
    up. This is meant for questions about a real cluster.

    Raises:
        InputError: The value of an option is wrong, or an option does not apply to the system or
            the workload.
    """
    from dagsim.config.yaml import Option, Setting

    settings = [
        *more,
        *given(policy=policy, seeds=what.seeds, seed=what.seed, precision=what.precision),
    ]
    system = [] if what.system is None else [Setting(Option.of("--system", what.system), "system.kind", what.system)]
    what = what._replace(set_=[*system, *first, *(what.set_ or ())])  # type: ignore[list-item]
    reading = trace.settings()
    if trace.format_ is not None:
        reading.append(Setting(Option.of("--format", trace.format_), "workload.format", trace.format_))
    reading += [] if windows is None else windows.settings()
    from dagsim.errors import ConfigError
    from dagsim.experiment.scenario import on_its_cluster
    from dagsim.report.terminal import counted

    asked = list(dict.fromkeys(setting.source.name for setting in reading if isinstance(setting.source, Option)))
    if trace.cluster in ("trace", "sized"):
        asked.append("--cluster")
    try:
        config = configured(what.config, what.set_, [*settings, *reading], what.workload)
    except ConfigError:  # The cause may be an option that applies only to traces; if so, say so instead.
        _refuse_without_trace(configured(what.config, what.set_, settings, what.workload), asked)
        raise
    _refuse_without_trace(config, [*asked, *(["--strict"] if trace.strict else [])])
    config = on_its_cluster(
        config, trace.cluster, counted("sizing a cluster to the trace", wanted=watched), invented=invented
    )
    if trace.strict:
        audited(config, told=False).refuse(config.trace().path)
    return config


def with_series(config: Config, prices: Path | None, carbon: Path | None) -> Config:
    """Return the configuration with metrics for the given series of energy prices and carbon
    intensities.

    Raises:
        ConfigError: A series cannot be read, or the configuration already has such a metric or does
            not describe a GPU cluster.
    """
    if prices is None and carbon is None:
        return config
    from dagsim.errors import ConfigError
    from dagsim.metrics.own import METRICS, value_name
    from dagsim.metrics.tariff import ENERGY
    from dagsim.systems.cluster.scenario import GpuCluster

    metrics = list(config.metrics)
    for option, name, path in zip(("--price", "--carbon"), ENERGY, (prices, carbon), strict=True):
        if path is None:
            continue
        if not isinstance(config.whole_system, GpuCluster):
            raise ConfigError(f"{option}: energy is modelled only for GPU clusters, but the system is {config.kind!r}")
        if name in map(value_name, metrics):
            raise ConfigError(f"{option}: the configuration already has the metric {name}; leave one of them out")
        metrics.append(f"{name}[series={json.dumps(str(path))}]")
        METRICS.create(metrics[-1])
    return config.model_copy(update={"metrics": tuple(metrics)})


def with_own_site(path: Path, asked: Experiment, reading: TraceFlags, scratch: Path, *, told: bool) -> Experiment:
    """If a log or a snapshot itself describes a site, write the site's configuration to
    ``scratch``, and return the options with this configuration. If a cluster is given or the file
    describes no site, return the options unchanged.
    """
    if asked.config is not None or reading.cluster is not None or not services.holds_site(path):
        return asked
    file = scratch / "site.yaml"
    lines = services.import_site([path], file)
    for line in lines if told else ():
        if line.startswith("not modelled:"):
            say(f"{path.name}: {line}", err=True)
    return asked._replace(config=str(file))


def audited(config: Config, *, told: bool, doubts: tuple[str, ...] = ()) -> Audit:
    """Check a configuration's log before anything is simulated. Print the contradictions within the
    log and with the site, and the additional ``doubts``.
    """
    from dagsim.systems.cluster.scenario import cluster_scenario_of

    audit = cluster_scenario_of(config).audit()
    audit.doubts += doubts
    for sentence in audit.sentences() if told else ():
        say(sentence)
    return audit


def checked(option: str, metric: str, config: Config | None = None, own: Iterable[str] = ()) -> None:
    """Reject an unknown metric before anything is simulated.

    Raises:
        InputError: No metric has this name.
    """
    from dagsim.errors import InputError
    from dagsim.metrics.own import value_name
    from dagsim.metrics.summary import check_metric

    try:
        check_metric(metric, [*own, *(value_name(spec) for spec in (config.metrics if config else ()))])
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def trace_at(path: Path, option: str = "--trace") -> list[Setting]:
    """Return the setting that makes the trace ``path`` the workload. ``option`` is the name of the
    option in error messages.
    """
    from dagsim.config.yaml import Option, Setting

    return [Setting(Option.of(option, path), "workload", {"kind": "trace", "path": str(path)})]


def given(**options: Any) -> list[Setting]:
    """Return a setting for each option that is not None. The name of each keyword argument is the
    configuration key that the option sets.
    """
    from dagsim.config.yaml import Option, Setting

    return [Setting(Option.of(_option(key), value), key, value) for key, value in options.items() if value is not None]


def _option(key: str) -> str:
    if key == "train.algorithm.kind":
        return "--algo"
    return f"--{key.rpartition('.')[2].replace('_', '-')}"


def _refuse_without_trace(config: Config, asked: Sequence[str]) -> None:
    """Raise an error if options for traces were given but the workload is not a trace. These
    options would be ignored.
    """
    from dagsim.errors import InputError

    if asked and config.trace_file is None:
        raise InputError(
            f"{', '.join(asked)}: applies only to a workload that is a trace (--workload FILE)"
            + ("; for a generated workload, use --set workload.load=0.7" if "--load" in asked else "")
        )
