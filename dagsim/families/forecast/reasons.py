"""Schedulers' reasons for a wait, and what each of them means for the start. Either the simulation
covers the reason, or the job waits for an event outside the simulation, or the job never starts
under the current rules.

Slurm's reasons come from ``job_state_reason.c`` (24.11) and from older versions, together with the
sentences that squeue prints instead of some reasons. Kueue's reasons are the messages of
conditions, and PBS's reasons are the comments in ``qstat -f``.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple


class Fate(IntEnum):
    """The prediction that a simulation from the current state can make about the start of a job."""

    KNOWN = 0
    """The simulation determines when the job starts."""
    OUTSIDE = 1
    """The job waits for a person or an event that is not simulated."""
    NEVER = 2
    """The job never starts under the present rules."""


class ReasonKind(NamedTuple):
    """The meaning of a reason."""

    fate: Fate
    words: str = ""
    """The event for which the job waits, or the fault."""


_KNOWN = ReasonKind(Fate.KNOWN)
_LIMIT_REACHED = ReasonKind(Fate.KNOWN, "until less of what a limit counts is in use")
_REQUEUED = ReasonKind(Fate.OUTSIDE, "an attempt failed, and the job is held until somebody releases it")
_NAMES: dict[str, ReasonKind] = {
    **dict.fromkeys(
        ("", "None", "Prolog", "Cleaning", "SchedDefer", "MPIPortsBusy", "MpiPortsBusy"), _KNOWN
    ),
    **dict.fromkeys(
        ("AssociationJobLimit", "AssocJobLimit", "AssociationResourceLimit", "AssocResourceLimit", "QOSJobLimit",
         "QOSResourceLimit", "quota"),
        _LIMIT_REACHED,
    ),
    "Priority": ReasonKind(Fate.KNOWN, "until jobs of higher priority have started"),
    "Resources": ReasonKind(Fate.KNOWN, "until enough nodes, CPUs, GPUs and memory are free"),
    "Dependency": ReasonKind(Fate.KNOWN, "until jobs that it depends on have started or ended"),
    "BeginTime": ReasonKind(Fate.KNOWN, "until its begin time"),
    "Licenses": ReasonKind(Fate.KNOWN, "until enough licences are free"),
    "Reservation": ReasonKind(Fate.KNOWN, "until a reservation begins or ends"),
    "JobArrayTaskLimit": ReasonKind(Fate.KNOWN, "until fewer tasks of its array run"),
    "Suspended": ReasonKind(Fate.KNOWN, "until it is resumed"),
    "JobHeldUser": ReasonKind(Fate.OUTSIDE, "until its user releases it"),
    "JobHeldAdmin": ReasonKind(Fate.OUTSIDE, "until an administrator releases it"),
    **dict.fromkeys(
        ("JobHoldMaxRequeue", "MaxRequeue", "JobLaunchFailure", "NonZeroExitCode", "RaisedSignal", "TimeLimit",
         "InactiveLimit", "OutOfMemory", "SystemFailure"),
        _REQUEUED,
    ),
    "PartitionDown": ReasonKind(Fate.OUTSIDE, "until its partition is up"),
    "PartitionInactive": ReasonKind(Fate.OUTSIDE, "until its partition is active"),
    "ReqNodeNotAvail": ReasonKind(Fate.OUTSIDE, "until nodes that it needs are no longer down, drained or reserved"),
    "NodeDown": ReasonKind(Fate.OUTSIDE, "until a node that it needs is no longer down"),
    "FrontEndDown": ReasonKind(Fate.OUTSIDE, "until a front-end node is up"),
    "BurstBufferResources": ReasonKind(Fate.OUTSIDE, "until the burst buffer has enough space"),
    "BurstBufferStageIn": ReasonKind(Fate.OUTSIDE, "until its files are in the burst buffer"),
    "BurstBufferOperation": ReasonKind(Fate.OUTSIDE, "an operation of the burst buffer failed"),
    "PowerNotAvail": ReasonKind(Fate.OUTSIDE, "until there is enough power"),
    "PowerReserved": ReasonKind(Fate.OUTSIDE, "until there is enough power"),
    "MaxPoweredUpNodes": ReasonKind(Fate.OUTSIDE, "until fewer nodes are powered up"),
    "NvidiaImexChannels": ReasonKind(Fate.OUTSIDE, "until a channel between nodes is free"),
    "FedJobLock": ReasonKind(Fate.OUTSIDE, "until its federation has decided on a cluster"),
    "QOSUsageThreshold": ReasonKind(Fate.OUTSIDE, "until its share of use is above the threshold of its QOS"),
    "AccountingPolicy": ReasonKind(Fate.OUTSIDE, "until the accounting policy admits it"),
    "ReservationDeleted": ReasonKind(Fate.OUTSIDE, "its reservation was deleted, and the job is held"),
    "ReservationInvalid": ReasonKind(Fate.OUTSIDE, "until its reservation is valid"),
    "PartitionNodeLimit": ReasonKind(Fate.NEVER, "it requests a number of nodes that its partition does not allow"),
    "PartitionTimeLimit": ReasonKind(Fate.NEVER, "its time limit is above that of its partition"),
    "PartitionConfig": ReasonKind(Fate.NEVER, "its partition does not admit it"),
    "BadConstraints": ReasonKind(Fate.NEVER, "no nodes satisfy its constraints"),
    "Constraints": ReasonKind(Fate.NEVER, "no nodes satisfy its constraints"),
    "InvalidAccount": ReasonKind(Fate.NEVER, "its account is not valid"),
    "InvalidQOS": ReasonKind(Fate.NEVER, "its QOS is not valid"),
    "AccountNotAllowed": ReasonKind(Fate.NEVER, "its account is not permitted to use its partition"),
    "QOSNotAllowed": ReasonKind(Fate.NEVER, "its QOS is not permitted to use its partition"),
    "DependencyNeverSatisfied": ReasonKind(Fate.NEVER, "a job that it depends on did not end as it had to"),
    "MaxMemPerLimit": ReasonKind(Fate.NEVER, "it requests more memory per CPU or node than is allowed"),
    "DeadLine": ReasonKind(Fate.NEVER, "it cannot end before its deadline"),
    **dict.fromkeys(
        ("AssociationTimeLimit", "AssocTimeLimit", "QOSTimeLimit"),
        ReasonKind(Fate.NEVER, "its time limit is above that of its account or QOS"),
    ),
}  # fmt: skip

_GATED = ReasonKind(Fate.OUTSIDE, "until its admission checks or gates are passed")
_STOPPED = ReasonKind(Fate.OUTSIDE, "until its queue is active")
_FAMILIES: tuple[tuple[re.Pattern[str], ReasonKind], ...] = tuple([
    (re.compile(pattern), verdict)
    for pattern, verdict in (
        # Slurm's limits on single jobs, on budgets, and on what a user or account may hold at a
        # time.
        (r"(QOS|Assoc)\w*(PerJob|PerNode|MaxWallDuration)|QOSMin\w+",
         ReasonKind(Fate.NEVER, "it requests more or less than a job may have")),
        (r"(QOS|Assoc)\w*(Minutes|GrpWall)|Max\w+RunMinsPer(User|Account)",
         ReasonKind(Fate.OUTSIDE, "until usage decays, or somebody raises the budget")),
        (r"(QOS|Assoc|Max)\w*(Energy|License|BB|Billing)",
         ReasonKind(Fate.OUTSIDE, "until its users hold less of the limited resource")),
        (r"(QOS|Assoc|Max)\w*Submit", ReasonKind(Fate.OUTSIDE, "until fewer jobs are submitted")),
        (r"(QOS|Assoc)(Grp|Max)|Max\w+PerAccount", _LIMIT_REACHED),
        # Sentences that squeue prints instead of a reason code.
        (r"Nodes required for job are DOWN",
         ReasonKind(Fate.KNOWN, "until nodes are up and not kept for jobs of partitions of higher priority")),
        (r"Job's account not permitted", _NAMES["AccountNotAllowed"]),
        (r"Job's QOS not permitted", _NAMES["QOSNotAllowed"]),
        (r"(launch|job) failed,? requeued held|user env retrieval failed|job requeued in held state", _REQUEUED),
        (r"Burst buffer|.*[sS]tage-(in|out)", _NAMES["BurstBufferOperation"]),
        (r"Reservation .* has ended", _NAMES["ReservationInvalid"]),
        # Conditions reported by Kubernetes and Kueue.
        (r"SchedulingGated|Admission is gated|.*admission check", _GATED),
        (r".*[qQ]ueue.*(is inactive|doesn't exist|is stopped|not started|not enabled|missing|not found)|"
         r"Can't admit new workloads|references (missing|inactive)", _STOPPED),
        (r".*workload is deactivated|Deactivated", ReasonKind(Fate.OUTSIDE, "until somebody activates it")),
        (r".*(request|requests) > maximum capacity|.*insufficient quota .*maximum",
         ReasonKind(Fate.NEVER, "it requests more than the quota of its queue can ever be")),
        # These patterns come before those for excluded flavors and nodes, because the messages also
        # name all excluded flavors and nodes.
        (r".*(insufficient unused quota|topology .*(allows|doesn't allow) to fit|preemption|[pP]reempting|"
         r"LastAcceptableFlavorName|nodes are available)|Unschedulable", _NAMES["Resources"]),
        (r".*namespace.*(doesn't match|does not exist)|.*LimitRange|.*resource validation",
         ReasonKind(Fate.NEVER, "the rules of its queue or namespace do not admit it")),
        (r".*(untolerated taint|doesn't match (with )?node affinity|does not provide resource|unavailable in Cluster|"
         r"invalid (\w+ )?(node|affinity|namespace)|no TAS flavor|more than one TAS flavor)",
         ReasonKind(Fate.NEVER, "no flavor of its queue admits it")),
        (r".*(no (requested )?topology|requested level|there is no Topology|requires Topology|"
         r"TopologyAwareScheduling|ElasticJobs|slice (layer|topology))",
         ReasonKind(Fate.NEVER, "no flavor of its queue has the topology that it requests")),
        (r".*\bDRA\b", ReasonKind(Fate.NEVER, "its claims of devices cannot be counted")),
        (r"(Evicted|Preempted|Replaced) |Exceeded the PodsReady|Workload was evicted|Quota reserved",
         ReasonKind(Fate.KNOWN, "until it is admitted again")),
        # Comments written by PBS.
        (r"Can Never Run|Not enough total nodes",
         ReasonKind(Fate.NEVER, "it requests more than the site has or allows")),
        (r"Job (is )?(held|on hold)", ReasonKind(Fate.OUTSIDE, "until somebody releases it")),
        (r"Insufficient amount of|Not enough|No available resources|Nodes not available|Job is requesting an exclusive",
         _NAMES["Resources"]),
        (r"Dedicated|.*dedicated time|Job (only runs|will run) in .*prime|Job (will|would) cross into",
         ReasonKind(Fate.OUTSIDE, "until the period of the day or the week in which it may run")),
        (r"Job would (conflict|interfere|break|cross)|.*would immediately be preemptable|Draining",
         _NAMES["Priority"]),
        (r"(User|Group|Project|Node) has reached|(Queue|Server) .*limit.*reached", _LIMIT_REACHED),
        (r"Job (has zero shares|exceeds total mission)", ReasonKind(Fate.NEVER, "its owner has no shares")),
        (r"Job would exceed mission", ReasonKind(Fate.OUTSIDE, "until its owner has used less of the share")),
        (r"Job is under job_sort_formula",
         ReasonKind(Fate.OUTSIDE, "until its priority is above the site's threshold")),
        (r"Job (is )?(in an invalid state|invalid|not in queued state)",
         ReasonKind(Fate.OUTSIDE, "until the server has put it into the queue again")),
        (r"Job (failed to be )?preempted|Job Array Began|Job run at", _KNOWN),
        (r"Node |Queue not an execution queue", ReasonKind(Fate.OUTSIDE, "until nodes that it needs are eligible")),
    )
])  # fmt: skip


UNLISTED = ReasonKind(Fate.KNOWN, "for a reason that dagsim does not list")


def verdict_of(reason: str) -> ReasonKind:
    """Return the meaning of a reason. A reason that is not listed here has no effect, so the
    simulation determines the start (``UNLISTED``).
    """
    reason = re.sub(r"^Not Running\s*[:-]\s*", "", reason)
    name = re.split(r"[,:(]", reason, maxsplit=1)[0].strip()
    if (known := _NAMES.get(name)) is not None:
        return known
    return next((verdict for pattern, verdict in _FAMILIES if pattern.match(reason)), UNLISTED)


_LIMIT = re.compile("Limit|Max|Grp|^quota$")


def is_limit(reason: str) -> bool:
    """Return True if the reason is a limit or a quota."""
    return _LIMIT.search(reason) is not None
