"""A table of old names of metrics, configuration keys and registry entries, with the names that
have replaced them.

Errors about an unknown name use this table to give the new name.
"""

from __future__ import annotations

import re
from collections.abc import Collection

NEW_NAMES = {
    # metrics
    "slowdown": "stretch",
    "bounded_slowdown_hpc": "bounded_slowdown",
    "area_jct_s": "area_weighted_jct_s",
    "scheduler_us": "decision_time_us",
    "queue_mean": "mean_queue_length",
    "queue_max": "max_queue_length",
    "in_system_mean": "mean_jobs_in_system",
    "jain": "jain_fairness_index",
    "rho_worst": "max_ftf",
    "rho_above_one": "unfair_job_fraction",
    "flops_utilization": "peak_weighted_utilization",
    "slo_attainment": "deadline_hit_rate",
    # configuration keys
    "disturbances": "failures",
    "load_is": "load_mode",
    "interval_s": "checkpoint_interval_s",
    "write_s": "checkpoint_write_s",
    "claim": "requested_factor",
}
"""The name that replaces each old one. Names whose meaning changed are not listed:
``bounded_slowdown`` used to mean what is now ``bounded_stretch``, and ``wait_s`` what is now
``queueing_s``.
"""

_PARTS = re.compile(r"((?:\w+\[.*\]\.)?)(\w+)((?:\.\w+)?)")


def new_name(old: str, names: Collection[str]) -> str | None:
    """Return the new name for ``old``, or None if the new name is not one of ``names``.

    If the name is part of a longer name of a metric, the other parts are kept:
    ``tenant[ann].slowdown.mean``.
    """
    match = _PARTS.fullmatch(old)
    if match is None or (name := NEW_NAMES.get(match[2])) is None:
        return None
    candidates = [f"{match[1]}{name}{match[3]}", f"{name}{match[3]}"]
    return candidates[0] if any(possible in names for possible in candidates) else None
