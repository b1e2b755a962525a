"""``dagsim site`` and ``dagsim trace anonymise``: real clusters as configurations, and logs without names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import App, app, say
from dagsim.cli.inspect import trace_app
from dagsim.cli.options import Quiet, Strict
from dagsim.text import count_of

site_app = App(help="Import a real cluster: its nodes, queues, limits and scheduler.", no_args_is_help=True)
app.add_typer(site_app, name="site")


@site_app.command("import")
def site_import(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER|FILE",
            help=(
                "The site's files: slurm.conf with the output of scontrol and sacctmgr; Kueue objects; "
                "the output of qmgr; or a list of nodes."
            ),
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="YAML", help="The configuration to write.")],
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE=TYPE",
            help="Which GPU type one of the site's own names stands for, such as a100=A100-80 (repeatable).",
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Time zone of dates in listings, such as Europe/Berlin (default: UTC)."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Keep nodes that are down, drained or in maintenance.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing file even if it differs.")
    ] = False,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Convert the files of a real cluster to a configuration with its nodes, partitions, accounts,
    limits and scheduler.

    Each file is recognised by its content. If you only give a list of nodes (scontrol show nodes,
    sinfo -N, kubectl get nodes -o json, pbsnodes -a), the configuration contains the cluster
    without queues.

    Example: dagsim site import scontrol-show-nodes.txt -o site.yaml
    """
    from dagsim.families.site.cluster_file import import_site

    lines = import_site(
        paths,
        out,
        gpus=",".join(gpu) if gpu else None,
        timezone=timezone,
        keep_all=all_,
        strict=strict,
        overwrite=overwrite,
    )
    for line in () if quiet else lines:
        say(line)


@trace_app.command("anonymise")
def anonymise_traces(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER...", help="Logs, node lists, or folders of site files."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the new files.")],
    quiet: Quiet = False,
) -> None:
    """Replace the names in logs, in lists of nodes and in all files of a site, so that you can
    share them.

    Users, accounts, jobs, partitions and nodes get new names. A name gets the same new name in all
    files that are given together. For a folder with the files of a site, the command writes the log
    of the site and its configuration, site.yaml.

    Example: dagsim trace anonymise sacct.txt nodes.txt --out shared
    """
    from dagsim.families.site.anonymise import Names, anonymise, renamed_site
    from dagsim.families.site.cluster_file import cluster_yaml
    from dagsim.families.site.site_import import read_site, site_files
    from dagsim.files import write_text

    names = Names()
    written = anonymise(paths, out, names)
    for path in paths:
        if path.is_dir() and (site := read_site(site_files([path]))) is not None:
            renamed = renamed_site(site, names)
            written.append(out / ("site.yaml" if len(paths) == 1 else f"site-{len(written) + 1}.yaml"))
            text = cluster_yaml(
                renamed.nodes, "cluster", "a site", renamed.queues, (), renamed.network, site.policy, renamed.restarts
            )
            write_text(written[-1], text)
    if not quiet:
        for new_path in written:
            say(new_path)
        say(f"{count_of(len(names), 'name')} replaced; times, sizes and GPU types are as they were")
