"""``dagsim warm``: compile the fast engine once."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

import typer

from dagsim.cli.app import app, say
from dagsim.cli.options import Quiet
from dagsim.families.compiled import services


@app.command()
def warm(
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", "-a", metavar="NAME", help="Compile only what this scheduler needs (repeatable)."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compile the fast engine for this machine. This is only needed once. Large runs then use it
    automatically.

    Example: dagsim warm --policy sjf
    """
    from dagsim.errors import ConfigError
    from dagsim.families.compiled.choice import EXAMPLES, INSTALL, is_installed, plan_for, why_broken
    from dagsim.systems.cluster.models.kept_work import Preemption

    if not is_installed():
        raise ConfigError(INSTALL)
    if why := why_broken():
        raise ConfigError(why)
    from dagsim.families.compiled import drive, jit

    if not jit.jitted():
        raise ConfigError("NUMBA_DISABLE_JIT=1 prevents numba from compiling, so unset it")
    for name in policy or EXAMPLES:
        began, chosen = perf_counter(), plan_for(name, Preemption())
        if drive.compile_loop(chosen) and not quiet:
            say(f"compiled {chosen.loop} (for {name} and its like) in {perf_counter() - began:.0f} s")
        if not drive.is_warm(chosen):
            raise ConfigError(
                f"{jit.folder()}: compiled functions cannot be cached there; set NUMBA_CACHE_DIR to a writable folder"
            )
    began = perf_counter()
    compile_episodes = None if policy else services.compile_episodes.offered()
    if compile_episodes and any([compile_episodes(), compile_episodes(trials=True)]) and not quiet:
        say(f"compiled episodes (for make_vec and training) in {perf_counter() - began:.0f} s")
    if not quiet:
        say(f"ready, in {jit.folder()}")
