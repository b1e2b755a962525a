"""A job in a listing of Slurm's queue, whatever the format of the listing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from dagsim.families.slurm.accounting.accounting_values import (
    array_ids,
    is_array,
    json_number,
    listed_tasks,
    unescaped_text,
)
from dagsim.traces.documents import list_in, text_in

ListedNumber: TypeAlias = int | float | str | None
"""A number as the listing states it. It is ``UNLIMITED`` if it is infinite, another text if it
cannot be read, and None if it is not set."""

NOT_QUEUED = {
    "JobHeldUser": "that are held",
    "JobHeldAdmin": "that are held",
    "Dependency": "that wait for other jobs",
    "DependencyNeverSatisfied": "that wait for other jobs",
}
"""Reasons for waiting that mean that no scheduler would start the job."""
_STATES = {
    # A completing job is about to free its nodes, so treat it as completed.
    "COMPLETING": "COMPLETED", "STAGE_OUT": "COMPLETED",
    # Another cluster in the federation runs these jobs.
    "REVOKED": "REVOKED", "REQUEUE_FED": "REVOKED",
    "REQUEUE_HOLD": "HELD", "SPECIAL_EXIT": "HELD", "RESV_DEL_HOLD": "HELD", "LAUNCH_FAILED": "HELD",
    "SUSPENDED": "SUSPENDED",
    # These jobs hold nodes: the nodes are booting, or the job is changing size, is being signalled,
    # or has been stopped (SIGSTOP).
    "CONFIGURING": "RUNNING", "POWER_UP_NODE": "RUNNING", "RESIZING": "RUNNING", "SIGNALING": "RUNNING",
    "STOPPED": "RUNNING", "RUNNING": "RUNNING",
    "REQUEUED": "PENDING", "EXPEDITING": "PENDING", "RECONFIG_FAIL": "PENDING", "PENDING": "PENDING",
}  # fmt: skip
"""The meaning of each state or flag of a job in the queue; if a job has several, the first in this
list counts."""
GRES_UNITS = ("job", "node", "task", "socket")


@dataclass(slots=True, kw_only=True)
class QueuedJob:
    """A job in a listing of the queue. The fields have the names of ``squeue --json``."""

    line: int
    """Number of the line in the listing."""
    job_id: ListedNumber
    array_job_id: ListedNumber
    array_task_id: ListedNumber
    array_task_string: str
    """The tasks of an array that wait together."""
    array_max_tasks: ListedNumber
    het_job_id: ListedNumber
    het_job_offset: ListedNumber
    name: str
    user_name: str
    account: str
    qos: str
    partition: str
    priority: ListedNumber
    states: tuple[str, ...]
    """The state, with flags."""
    state_reason: str
    """Why the job waits. If the listing states no reason, it follows from the other fields."""
    dependency: str
    submit_time: ListedNumber
    eligible_time: ListedNumber
    start_time: ListedNumber
    suspend_time: ListedNumber
    """When the job was last suspended or continued."""
    pre_sus_time: ListedNumber
    """Seconds that the job had run until then."""
    run_time: ListedNumber
    last_sched_evaluation: ListedNumber
    has_two_readings: bool = False
    """True if a date is in an hour that occurs twice in its time zone."""
    time_limit: ListedNumber
    """In minutes."""
    node_count: ListedNumber
    cpus: ListedNumber
    tasks: ListedNumber
    sockets_per_node: ListedNumber
    nodes: str
    tres_req_str: str
    tres_alloc_str: str
    gres_detail: tuple[str, ...]
    gres: Mapping[str, str]
    """The requested gres, by the unit to which their numbers refer."""
    memory: str
    features: str
    resv_name: str
    licenses: str
    required_nodes: str
    excluded_nodes: str
    shared: str
    """With whom the job shares its nodes (``exclusive`` in new versions)."""
    state: str = field(init=False)
    """The meaning of the states: ``RUNNING`` if the job holds its nodes."""

    def __post_init__(self) -> None:
        first = self.states[0] if self.states else ""
        self.state = next((meaning for word, meaning in _STATES.items() if word in self.states), first)
        if self.state == "PENDING" and self.state_reason in ("", "None"):
            self.state_reason = self._unstated_reason() or self.state_reason
        if self.state == "HELD":
            self.state = "PENDING"
            if NOT_QUEUED.get(self.state_reason) != "that are held":
                self.state_reason = "JobHeldAdmin"

    def _unstated_reason(self) -> str:
        """Derive the reason why the job waits from its other fields, if the listing states no
        reason: slurmctld lists the conditions that are not met, and gives held jobs the priority 0.
        Return an empty text if the fields give no reason.
        """
        if self.dependency:
            failed = "(failed)" in self.dependency and "?" not in self.dependency
            return "DependencyNeverSatisfied" if failed else "Dependency"
        return "JobHeldUser" if self.priority == 0 else ""

    @property
    def runs(self) -> bool:
        """True if the job holds its nodes."""
        return self.state == "RUNNING"

    @property
    def id(self) -> str:
        """The id of the job. Tasks of an array that wait together have one id: ``7_[3-90]``."""
        own = unescaped_text(self.job_id)
        if self.array_job_id and self.array_task_id is not None:
            return f"{unescaped_text(self.array_job_id)}_{unescaped_text(self.array_task_id)}"
        if listed := listed_tasks(self.array_task_string).partition("%")[0]:
            tasks = f"{unescaped_text(self.array_job_id) if self.array_job_id else own}_[{listed}]"
            return tasks if is_array(tasks) else own
        if self.het_job_id and self.het_job_offset is not None:
            return f"{unescaped_text(self.het_job_id)}+{unescaped_text(self.het_job_offset)}"
        return own

    @property
    def ids(self) -> list[str]:
        """The id of the job, or the ids of array tasks that are waiting together."""
        return array_ids(self.id)

    @property
    def submission(self) -> str:
        """The number of the submission to which the job belongs."""
        return re.split("[_+]", self.id, maxsplit=1)[0]

    @property
    def conditions(self) -> str:
        """The conditions for which the job is still waiting, in sbatch's syntax."""
        return re.sub(r"_\*|\([a-z]*\)", "", self.dependency)

    @property
    def exclusive(self) -> str | None:
        """The value of sbatch's option ``exclusive``: empty if the job shares no node, ``user`` if
        it shares nodes only with other jobs of its user, and None if it lacks the option."""
        return {"none": "", "true": "", "user": "user"}.get(self.shared.lower())

    @property
    def sockets(self) -> int:
        """The number of sockets that the job requests on each node, or 0 if it states none."""
        sockets = self.sockets_per_node
        return sockets if isinstance(sockets, int) and 0 < sockets < 1024 else 0

    def ran_until_suspended_s(self) -> float | None:
        """Return for how many seconds a suspended job has run, or None for any other job."""
        if self.state != "SUSPENDED":
            return None
        if isinstance(self.pre_sus_time, int | float):
            return float(self.pre_sus_time)
        start, stop = self.start_time, self.suspend_time
        return float(stop - start) if isinstance(start, int | float) and isinstance(stop, int | float) else 0.0

    def was_suspended_s(self) -> float:
        """Return for how many seconds a running job has been suspended since its start."""
        before, resumed, start = self.pre_sus_time, self.suspend_time, self.start_time
        if not (isinstance(before, int | float) and isinstance(resumed, int | float)):
            return 0.0
        if not (before and self.runs and isinstance(start, int | float)):
            return 0.0
        return max(float(resumed - start - before), 0.0)


_NUMBERS = [one.name for one in fields(QueuedJob) if one.type == "ListedNumber"]
_TEXTS = [one.name for one in fields(QueuedJob) if one.type == "str" and one.init]


def job_of_json(line: int, job: Mapping[str, Any]) -> QueuedJob:
    """Return a job in the output of ``squeue --json``."""
    current = job.get("job_state")
    values: dict[str, Any] = {name: json_number(job.get(name)) for name in _NUMBERS}
    values |= {name: text_in(job.get(name)) for name in _TEXTS}
    values["shared"] = text_in(job.get("exclusive")) or values["shared"]
    return QueuedJob(
        **values,
        line=line,
        states=tuple([word for word in (current if isinstance(current, list) else [current]) if isinstance(word, str)]),
        gres_detail=tuple([one for one in list_in(job.get("gres_detail")) if isinstance(one, str)]),
        gres={unit: text_in(job.get(f"tres_per_{unit}")) for unit in GRES_UNITS},
    )
