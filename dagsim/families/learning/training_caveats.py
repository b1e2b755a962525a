"""Warnings about experiments for which an agent's training was not suitable."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dagsim.config.schema import Config
from dagsim.experiment.provenance import digest
from dagsim.families.learning.checkpoint_file import read_plain
from dagsim.seeds import REPORT, part_of
from dagsim.text import count_of


def caveats(config: Config, seeds: Iterable[int], checkpoint: Path, beliefs: bool = False) -> list[str]:
    """Return warnings if an experiment differs from the agent's training, or if it contains jobs on
    which the agent was trained or selected.
    """
    beside = checkpoint.with_suffix(".json")  # a shipped agent's settings are in a second file next to it
    facts = json.loads(beside.read_text("utf-8")) if beside.is_file() else read_plain(checkpoint).get("about", {})
    unfamiliar = None if beliefs else _unfamiliar(config, facts)
    return [said for said in (_overlap(config, seeds, facts), unfamiliar) if said is not None]


def _unfamiliar(config: Config, facts: Mapping[str, Any]) -> str | None:
    """Return a warning if the experiment hides durations that were never hidden from the agent, and
    None otherwise."""
    trained_with = facts.get("knowledge")
    if not trained_with or not config.whole_system.hides_durations or "hidden" in trained_with:
        return None
    return (
        f"durations are hidden, but the agent was trained with estimates ({', '.join(trained_with)}), so it may be no "
        "better than a heuristic; ppo[beliefs=true] gives the agent expected durations, and dagsim train --set "
        "estimates.kind=hidden trains an agent for such jobs"
    )


def _overlap(config: Config, seeds: Iterable[int], facts: Mapping[str, Any]) -> str | None:
    """Return a warning if an experiment contains jobs with which the agent was trained or selected.
    The warning states how many of the experiment's windows contain such jobs.

    Return None if no window contains such jobs.
    """
    trace = config.trace_file
    traces = facts.get("traces") or ()
    if (
        trace is None
        or trace.window is None
        or not any(digest(path) in traces for path in config.whole_system.trace_paths)
    ):
        return None
    rest, places = part_of(REPORT.start)[0], trace.places(seeds)
    if not (inside := sum(begin < rest for begin, _ in places)):
        return None
    return (
        f"{inside} of {count_of(len(places), 'window')} contain jobs from the first {100 * rest:.0f}% of the "
        "trace, on which the agent "
        f"was trained and chosen; --set workload.part=[{rest:g},1] takes windows from the rest"
    )
