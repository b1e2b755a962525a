"""``dagsim config``: configurations shown, checked and described."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import ConfigFile, Settings
from dagsim.cli.shared import configured
from dagsim.errors import InputError

__all__ = ["config_app"]

config_app = typer.Typer(help="Show, check and describe configurations.", no_args_is_help=True)
app.add_typer(config_app, name="config")


@config_app.command("show")
def config_show(config: ConfigFile = None, set_: Settings = None) -> None:
    """Print the whole configuration, defaults included, as YAML.

    Example: dagsim config show --set cluster.groups.0.count=4
    """
    from dagsim.config.schema import dump_config

    typer.echo(dump_config(configured(config, set_)), nl=False)


@config_app.command("check")
def config_check(
    files: Annotated[
        list[str], typer.Argument(metavar="YAML...", help="Files, run folders, or names of `dagsim list configs`.")
    ],
) -> None:
    """Check configurations; every fault is named with its line, key and remedy.

    Example: dagsim config check my.yaml
    """
    from dagsim.errors import ConfigError
    from dagsim.experiment.simulate import check

    faults = []
    for file in files:
        try:
            config = configured(file, None)
            check(config, (config.policy,))
        except InputError as error:
            faults.append(str(error))
        else:
            typer.echo(f"{file}: fine")
    if faults:
        raise ConfigError("\n".join(faults))


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of configurations, for editors.

    Example: dagsim config schema > dagsim.schema.json
    """
    from dagsim.config.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))
