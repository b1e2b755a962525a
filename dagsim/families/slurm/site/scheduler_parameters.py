"""The parameters of ``slurm-multifactor`` that follow from slurm.conf."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagsim.families.slurm.site.slurm_site_values import MOST, naming, slurm_seconds
from dagsim.traces.fields import count, finite_number
from dagsim.traces.times import is_unset, moment_s

if TYPE_CHECKING:
    from dagsim.families.slurm.site.slurm_site import SlurmSite

_WEIGHTS = {"age": "age", "assoc": "assoc", "fair_share": "fairshare", "job_size": "jobsize",
            "partition": "partition", "qos": "qos"}  # fmt: skip
_FLAGS = {"accrue_always": "ACCRUE_ALWAYS", "relative_size": "SMALL_RELATIVE_TO_TIME", "max_tres": "MAX_TRES"}
_PLAIN = frozenset({"bf_continue", "bf_running_job_reserve", "kill_invalid_depend", "nohold_on_prolog_fail",
                    "bf_yield_interval", "bf_yield_sleep", "max_rpc_cnt", "sched_max_job_start", "batch_sched_delay",
                    "enable_user_top", "bf_busy_nodes", "bf_max_time"})  # fmt: skip
"""SchedulerParameters that have no effect on the starts of jobs here."""
_PLAIN_CONF = {"preemptexempttime": ("-1", "00:00:00", "none"), "preemptparameters": (), "completewait": ("0", "0 sec"),
               "prioritysitefactorplugin": (), "mcsplugin": ("mcs/none",), "burstbuffertype": (),
               "federationparameters": (), "nodefeaturesplugins": (), "dependencyparameters": (), "topologyparam": (),
               "resvoverrun": ("0", "0 min")}  # fmt: skip
"""slurm.conf keys that affect the starts of jobs but are not modelled, with the values for which
they have no effect."""


def scheduler_of(site: SlurmSite) -> dict[str, Any]:
    """Return the parameters of ``slurm-multifactor`` that follow from slurm.conf, with Slurm's
    defaults (slurm.conf(5)) for keys that are not set.

    Raises:
        TraceError: A value cannot be read.
    """
    with naming("slurm.conf"):
        settings = _of_priorities(site, site.conf) | _of_past_usage(site, site.conf)
        _drop_unmodelled(site, site.conf)
        return settings | _of_starts(site, site.conf) | _of_scheduler_parameters(site)


def _of_priorities(site: SlurmSite, conf: Mapping[str, str]) -> dict[str, Any]:
    """Return the order of jobs and the weights of the factors of their priority."""
    settings: dict[str, Any] = {
        "order": "basic" if "basic" in conf.get("prioritytype", "multifactor") else "multifactor"
    }
    settings |= {
        ours: finite_number(conf.get(f"priorityweight{name}") or "0", f"priorityweight{name}")
        for ours, name in _WEIGHTS.items()
    }
    for part in (conf.get("priorityweighttres") or "").split(","):
        name, _, weight = part.partition("=")
        if name and not is_unset(name):
            ours = {"cpu": "tres_cpus", "mem": "tres_memory", "gres/gpu": "tres_gpus"}.get(name.lower())
            if ours is None:
                site.drop(f"PriorityWeightTRES of {name}")
            else:
                settings[ours] = finite_number(weight, "priorityweighttres")
    return settings


def _of_past_usage(site: SlurmSite, conf: Mapping[str, str]) -> dict[str, Any]:
    """Return the rules by which age and past usage count, and the times at which they are
    calculated."""
    period, flags = conf.get("prioritycalcperiod") or "5", conf.get("priorityflags", "").upper().split(",")
    settings: dict[str, Any] = {
        "max_age_s": slurm_seconds(conf.get("prioritymaxage") or "7-0"),
        "half_life_s": slurm_seconds(conf.get("prioritydecayhalflife") or "7-0"),
        "calc_period_s": 60.0 * finite_number(period, "prioritycalcperiod")
        if period.isdecimal()
        else slurm_seconds(period),
    }
    # slurmctld calculates priorities when it starts, so count the periods from then on
    boot_s = moment_s(boot, "boot_time", site.zone) if not is_unset(boot := conf.get("boot_time", "")) else None
    if (calculated_s := site.log.calculated_s or boot_s) is not None:
        settings["calc_phase_s"] = calculated_s
    if site.bf_cycle_s is not None:
        settings["bf_cycle_s"] = site.bf_cycle_s
    settings["damping"] = finite_number(conf.get("fairsharedampeningfactor") or "1", "fairsharedampeningfactor")
    settings["algorithm"] = "classic" if "NO_FAIR_TREE" in flags else "tree"
    settings["favor_small"] = conf.get("priorityfavorsmall", "no").lower() in ("yes", "1")
    return settings | {ours: flag in flags for ours, flag in _FLAGS.items()}


def _drop_unmodelled(site: SlurmSite, conf: Mapping[str, str]) -> None:
    """Report keys that affect the starts of jobs but are not modelled."""
    for flag in filter(None, conf.get("priorityflags", "").upper().split(",")):
        if flag not in (*_FLAGS.values(), "NO_FAIR_TREE", "FAIR_TREE"):
            site.drop(f"PriorityFlags={flag}")
    if (conf.get("priorityusageresetperiod") or "none").lower() != "none":
        site.drop(f"PriorityUsageResetPeriod={conf['priorityusageresetperiod']}")
    for key, plain in _PLAIN_CONF.items():
        if (value := conf.get(key, "")) and not is_unset(value) and value.lower() not in plain:
            site.drop(f"{key}={value}")


def _of_starts(site: SlurmSite, conf: Mapping[str, str]) -> dict[str, Any]:
    """Return the rules of backfill, preemption, limits and placement."""
    preempt = {"preempt/partition_prio": "partition_prio", "preempt/qos": "qos"}.get(conf.get("preempttype", ""), "off")
    settings: dict[str, Any] = {
        "backfill": "builtin" not in conf.get("schedulertype", "sched/backfill"),
        "preempt": preempt,
    }
    if preempt != "off" or site.outages:
        expires = re.search(r"cred_expire=(\d+)", conf.get("authinfo", ""))
        settings["requeue_delay_s"] = float(int(expires[1]) if expires else 120) + 1.0
    if "safe" not in conf.get("accountingstorageenforce", "safe").lower():
        settings["limits"] = "used"
    over = conf.get("overtimelimit") or "0"
    if over.upper() in ("UNLIMITED", "INFINITE"):
        settings["kill"] = "never"
    else:
        settings["over_time_s"] = 60.0 * finite_number(over.split()[0], "overtimelimit")
    return settings | {"gangs": "distinct", "place": "best"}


def _of_scheduler_parameters(site: SlurmSite) -> dict[str, Any]:
    """Return the parameters in SchedulerParameters."""
    text = site.conf.get("schedulerparameters") or ""
    parts = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    stated = {name: value for name, _, value in parts}
    seconds = {"bf_interval": ("bf_interval_s", 30.0, 1.0), "bf_window": ("bf_window_s", 1440.0, 60.0),
               "bf_resolution": ("bf_resolution_s", 60.0, 1.0), "sched_interval": ("sched_interval_s", 60.0, 1.0),
               "bf_window_linear": ("bf_window_linear_s", 0.0, 1.0),
               "sched_min_interval": ("sched_min_interval_s", 2.0, 1e-6)}  # fmt: skip
    counts = {"bf_max_job_test": ("bf_max_job_test", 500), "default_queue_depth": ("queue_depth", 100),
              "bf_max_job_user": ("bf_max_job_user", 0), "bf_max_job_assoc": ("bf_max_job_assoc", 0),
              "bf_max_job_part": ("bf_max_job_part", 0),
              "bf_max_job_array_resv": ("bf_max_job_array_resv", 20)}  # fmt: skip
    settings: dict[str, Any] = {}
    for name, (ours, default, unit) in seconds.items():
        settings[ours] = finite_number(str(stated.pop(name, default)), name) * unit
    if settings["sched_min_interval_s"] < 0.001:
        # Treat negligible intervals, such as Slurm's default of 2 microseconds, as 0.
        settings["sched_min_interval_s"] = 0.0
    for name, (ours, least) in counts.items():
        settings[ours] = count(str(stated.pop(name, least)), name, 0, MOST)
    for name, value in stated.items():
        if name not in _PLAIN:
            site.drop(f"SchedulerParameters={name}{'=' if value else ''}{value}")
    return settings
