"""``dagsim cluster``: clusters as their schedulers describe them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Quiet

__all__ = ["cluster_app"]

cluster_app = typer.Typer(help="Take over the nodes of a real cluster.", no_args_is_help=True)
app.add_typer(cluster_app, name="cluster")


@cluster_app.callback()
def _clusters() -> None:
    pass


@cluster_app.command("import")
def import_cluster(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What scontrol show nodes, sinfo -N, kubectl get nodes -o json or pbsnodes -a printed.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="YAML", help="The configuration to write.")],
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE=TYPE", help="What a site's name of a GPU type stands for: a100=A100-80; repeatable."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Keep nodes that are down, drained or in maintenance.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write the nodes of a real cluster as the cluster of a configuration.

    Example: dagsim cluster import scontrol-show-nodes.txt -o cluster.yaml
    """
    from dagsim.config.cluster_file import cluster_yaml
    from dagsim.config.schema import load_config
    from dagsim.files import write_text
    from dagsim.traces.nodes import grouped, read_nodes
    from dagsim.traces.sites import named_gpus
    from dagsim.traces.source import Source

    named = named_gpus(",".join(gpu) if gpu else None, "--gpu")
    imported = grouped(read_nodes(Source(path)), named, keep_all=all_)
    write_text(out, cluster_yaml(imported, out.stem, path.name))
    cluster = load_config(out).build_cluster()
    if quiet:
        return
    typer.echo(f"{out}: {cluster}")
    for note in imported.notes:
        typer.echo(f"noted: {note}")
    if imported.left_out:
        typer.echo(f"left out {len(imported.left_out):,} nodes (--all keeps them): {'; '.join(imported.left_out[:8])}")
    for kind in imported.unknown:
        typer.echo(f"GPU type {kind!r} is not known: say what it is with --gpu {kind}=TYPE, or fill in {out}")
