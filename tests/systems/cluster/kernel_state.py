"""Everything that a cluster kernel is at an instant, as values that can be compared."""

from __future__ import annotations

from typing import Any

from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.resources.nodes import NodeState
from dagsim.systems.cluster.state import JobState, Run, TaskState


def cluster_state(kernel: ClusterKernel) -> dict[str, Any]:
    machines = kernel.machines
    return {
        "now": (kernel.now, kernel.wake_s, kernel._arrived, kernel._started, kernel._pieces, kernel.changed),
        "log": list(kernel.schedule.log),
        "jobs": {number: _job(active) for number, active in kernel.frontier.jobs.items()},
        "ready": [_task(task) for task in kernel.frontier.ready],
        "applicants": {number: _job(active) for number, active in kernel.applicants.items()},
        "running": {number: _run(run) for number, run in kernel.running.items()},
        "machines": [_machine(machine) for machine in machines.list],
        "indexes": [{level: bits for level, bits in index.sets.items() if bits} for index in machines.by_gpus],
        "shared": (list(machines.shared), machines.released, [machine.index for machine in machines.recent]),
        "cpus": None if machines.by_cpus is None else [dict(index.sets) for index in machines.by_cpus],
        "due": [(time_s, order, id(event)) for time_s, order, event in kernel.clock.scheduled()],
        "streams": {name: rng.bit_generator.state for name, rng in kernel.streams.by_name.items()},
    }


def _job(active: JobState) -> tuple[Any, ...]:
    return active.tasks_left, active.service_gpu_s, dict(active.places), [_task(task) for task in active.tasks]


def _task(task: TaskState) -> tuple[Any, ...]:
    plain = {name: getattr(task, name) for name in TaskState.__slots__ if name not in ("job", "task", "demand")}
    return task.name, id(task), tuple(plain.items())


def _run(run: Run) -> tuple[Any, ...]:
    held = [(machine.index, *what) for machine, *what in run.held]
    times = run.true_seconds, run.started_s, run.scheduled_end_s, run.setup_s, run.computing_s
    return id(run.task), run.instances, held, *times


def _machine(machine: NodeState) -> tuple[Any, ...]:
    return machine.idle, machine.free, machine.cpus, machine.memory, dict(machine.shares), machine.up
