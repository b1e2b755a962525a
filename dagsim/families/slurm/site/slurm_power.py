"""Slurm's power saving: which idle nodes are powered down, and how long powering down and booting
take.

The rules are those of slurm.conf(5) and of https://slurm.schedmd.com/power_save.html. A partition
may override SuspendTime, SuspendTimeout and ResumeTimeout for its nodes. For a node in several
partitions, the largest value counts. SuspendExcNodes and SuspendExcParts may keep a number of the
listed nodes up, as in ``a[1-9]:4``. SuspendExcStates may keep up all cloud nodes or all dynamic
nodes. No configuration file states how long a boot takes, but slurmctld's log shows it. Without
this log, the boot time is assumed to be ResumeTimeout, the longest time that a boot may take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import inf

from dagsim.errors import TraceError
from dagsim.model import OnDemand
from dagsim.traces.sites import hosts
from dagsim.traces.times import is_unset

_PART = re.compile(r"((?:[^,:\[]|\[[^\]]*\])+)(?::(\d+))?")
_DEFAULTS_S = {"suspendtime": inf, "suspendtimeout": 30.0, "resumetimeout": 60.0}
_RATES = {"resumerate": 300, "suspendrate": 60}
_MARKS = re.compile(r"[*~#!%$@^-]+$")


def power_rules(
    conf: Mapping[str, str],
    partitions: Mapping[str, Mapping[str, str]],
    states: Mapping[str, str],
    boot_s: float | None,
    drop: Callable[[str], None],
) -> dict[str, OnDemand]:
    """Return the rules for the nodes that power saving may power down, and for nodes that start
    powered down because their state is CLOUD.

    ``conf`` contains the keys of slurm.conf in lower case, ``partitions`` the keys of each
    partition, and ``states`` the state of each node. ``boot_s`` is the typical boot time according
    to slurmctld's log. ``drop`` is called for settings that are not modelled.

    Raises:
        TraceError: A value cannot be read.
    """
    parts = {name: _members(row.get("nodes", ""), states) for name, row in partitions.items()}
    stated = any(not is_unset(row.get("suspendtime", "")) for row in (conf, *partitions.values()))
    if not stated:
        return {}
    if any(is_unset(conf.get(key, "")) for key in ("suspendprogram", "resumeprogram")):
        if _seconds(conf, "suspendtime", "slurm.conf") not in (None, inf):
            drop("suspendtime: power saving needs SuspendProgram and ResumeProgram; without them all nodes stay up")
        return {}
    kept = {word.upper() for word in re.split(r"[,\s]+", conf.get("suspendexcstates", "")) if not is_unset(word)}
    excluded = {node for node, state in states.items() if kept & _LASTING & _words(state)}
    excluded |= set(_excluded(conf.get("suspendexcnodes", ""), lambda text: _members(text, states)))
    excluded |= set(_excluded(conf.get("suspendexcparts", ""), lambda text: parts.get(text, ())))
    rates = _rate(conf, "resumerate", len(states)), _rate(conf, "suspendrate", len(states))
    rules: dict[str, OnDemand] = {}
    for node, state in states.items():
        rows = [(name, partitions[name]) for name, members in parts.items() if node in members]
        if rule := _rule(conf, rows, state, boot_s, rates, stays_up=node in excluded):
            rules[node] = rule
    if rules and boot_s is None:
        drop(
            f"resumetimeout={max(rule.mean_boot_s for rule in rules.values()):g} s: used as the time that every boot "
            "takes, which no file states; add slurmctld.log, or set on_demand.boot_s"
        )
    if rules and (passing := sorted(kept - _LASTING)):
        drop(f"suspendexcstates: {', '.join(passing)}, as nodes leave these states")
    return rules


def _rule(
    conf: Mapping[str, str],
    rows: list[tuple[str, Mapping[str, str]]],
    state: str,
    boot_s: float | None,
    rates: tuple[int, int],
    *,
    stays_up: bool,
) -> OnDemand | None:
    """Return the rule for a node in the partitions ``rows``, with ``rates`` of boots and stops a
    minute. Return None if the node is always up."""
    times, words = {key: _largest_s(conf, rows, key) for key in _DEFAULTS_S}, _words(state)
    idle_s = None if stays_up or times["suspendtime"] == inf else times["suspendtime"]
    if any(row.get("powerdownonidle", "no").upper() == "YES" for _, row in rows) and not stays_up:
        idle_s = 0.0
    if idle_s is None and "CLOUD" not in words:
        return None
    return OnDemand(
        times["resumetimeout"] if boot_s is None else boot_s,
        idle_s,
        times["suspendtimeout"],
        up=not ("CLOUD" in words or "POWERED_DOWN" in words or state.endswith("~")),
        boots_a_minute=rates[0],
        stops_a_minute=rates[1],
        timeout_s=times["resumetimeout"],
    )


_LASTING = frozenset({"CLOUD", "DYNAMIC_FUTURE", "DYNAMIC_NORM"})
"""States that a node has as long as it exists."""


def _words(state: str) -> set[str]:
    """Return the words that describe a node's state, without the marks for power saving."""
    return {_MARKS.sub("", word).upper() for word in state.split("+")}


def _rate(conf: Mapping[str, str], key: str, nodes: int) -> int:
    """Return how many nodes may be powered up (or down) per minute, or 0 if there is no limit."""
    text = conf.get(key, "").partition(" ")[0]
    rate = int(text) if text.isdecimal() else _RATES[key]
    return rate if rate < nodes else 0


def _largest_s(conf: Mapping[str, str], rows: list[tuple[str, Mapping[str, str]]], key: str) -> float:
    """Return the largest value that the partitions of a node state. If none states a value, return
    the global one."""
    own = [_seconds(row, key, f"partition {name}") for name, row in rows]
    known = [value for value in own if value is not None]
    stated = max(known) if known else _seconds(conf, key, "slurm.conf")
    return _DEFAULTS_S[key] if stated is None else stated


def _seconds(row: Mapping[str, str], key: str, owner: str) -> float | None:
    """Read a number of seconds. The result is infinite for INFINITE, NONE and -1, and None if no
    number is stated.
    """
    text = row.get(key, "").strip()
    word = text.partition(" ")[0]
    if word.upper() in ("INFINITE", "NONE", "-1"):
        return inf
    if is_unset(text):
        return None
    if not word.isdecimal():
        raise TraceError(f"{owner}: {key} {text[:80]!r} is not a number of seconds, INFINITE or -1")
    return float(word)


def _excluded(text: str, members: Callable[[str], tuple[str, ...]]) -> Iterator[str]:
    """Yield the nodes that a list excludes. An entry exempts all of its nodes from power saving or,
    if it ends in a count, only that many of them, the first ones.
    """
    for part, number in _PART.findall("" if is_unset(text) else text):
        nodes = members(part.strip())
        yield from nodes[: int(number)] if number else nodes


def _members(text: str, states: Mapping[str, str]) -> tuple[str, ...]:
    """Return the existing nodes that a list names."""
    if text.upper() == "ALL":
        return tuple(states)
    try:
        return tuple([node for node in hosts("" if is_unset(text) else text) if node in states])
    except ValueError as error:
        raise TraceError(f"slurm.conf: {error}") from None
