"""Schedulers that speak Batsim's protocol: the messages, pybatsim's own schedulers, and peers that break the rules."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest
from support.command_line import fine
from support.log_reading import rows_of

from dagsim.config.schema import load_config
from dagsim.errors import CodeNotAllowed, ConfigError, PolicyFailed, UnknownName
from dagsim.experiment.provenance import sources_of
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import make_policy
from dagsim.families.programs.batsim import Batsim
from dagsim.model import Cluster, Decision, Edge, Job, Node, Task, TaskGraph, gpu_type
from dagsim.model.log import Kind, Schedule
from dagsim.own_code import Allowed, allow
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.api import ClusterView

zmq = pytest.importorskip("zmq")

ROOT = Path(__file__).parents[3]
Message = dict[str, Any]
Answer = Callable[[Message], Any]


def free_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def scheduler(answer: Answer) -> Iterator[tuple[str, list[Message]]]:
    """A scheduler in a thread that answers every message by ``answer(message)``, until the simulation ends."""
    endpoint, heard = free_endpoint(), []

    def serve() -> None:
        with zmq.Context() as context, context.socket(zmq.REP) as peer:
            peer.linger = 0
            peer.bind(endpoint)
            while peer.poll(3000):
                message = json.loads(peer.recv())
                heard.append(message)
                reply = answer(message)
                peer.send_string(reply if isinstance(reply, str) else json.dumps(reply))
                if any(event["type"] == "SIMULATION_ENDS" for event in message["events"]):
                    return

    thread = Thread(target=serve, daemon=True)
    thread.start()
    yield endpoint, heard
    thread.join(5)
    assert not thread.is_alive(), "the scheduler was not told that the simulation has ended"


def at(time_s: float, type_: str, data: Message) -> Message:
    return {"timestamp": time_s, "type": type_, "data": data}


def reply(message: Message, *orders: Message, later_s: float = 0.0) -> Message:
    return {"now": message["now"] + later_s, "events": list(orders)}


def first_come(cores: int) -> Answer:
    """A strict queue on the lowest free resources."""
    free, queue, held = set(range(cores)), [], {}

    def answer(message: Message) -> Message:
        orders = []
        for event in message["events"]:
            data = event.get("data", {})
            if event["type"] == "JOB_SUBMITTED":
                queue.append((data["job_id"], data["job"]["res"]))
            if event["type"] == "JOB_COMPLETED":
                free.update(held.pop(data["job_id"]))
        while queue and queue[0][1] <= len(free):
            id_, count = queue.pop(0)
            held[id_] = sorted(free)[:count]
            free.difference_update(held[id_])
            alloc = " ".join(map(str, held[id_]))
            orders.append(at(message["now"], "EXECUTE_JOB", {"job_id": id_, "alloc": alloc}))
        return reply(message, *orders)

    return answer


def timeline(schedule: Schedule) -> list[tuple[str, float, int]]:
    """Starts and ends of jobs, by time and job."""
    kinds = (Kind.STARTED, Kind.FINISHED)
    return sorted({(row.kind.name, row.time_s, row.job) for row in schedule.log if row.kind in kinds})


def rigid(seed: int, widths: tuple[int, ...], count: int = 40, mean_s: float = 4.0) -> list[Job]:
    random, now, jobs = Random(seed), 0.0, []
    for number in range(count):
        now += random.expovariate(1 / mean_s)
        task = Task("t", random.uniform(1, 60), instances=random.choice(widths), gang=True)
        jobs.append(Job.single(f"j{number}", task, now))
    return jobs


def machines(count: int) -> Cluster:
    """A cluster whose node numbers are the numbers of Batsim's resources."""
    return Cluster.of({"T4": count}, per_node=1)


def ours(name: str, cluster: Cluster, jobs: list[Job]) -> Schedule:
    return ClusterKernel(cluster, jobs).run(make_policy(scenario_of(load_config(None)), name))


def test_the_messages_are_those_of_batsim() -> None:
    jobs = [Job.single("a", Task("t", 10.0, instances=2, gang=True)), Job.single("b", Task("t", 1.0), 3.0)]
    with scheduler(first_come(2)) as (endpoint, heard):
        ClusterKernel(machines(2), jobs).run(Batsim(endpoint))
    begins, *rest = heard
    assert [event["type"] for event in begins["events"]] == ["SIMULATION_BEGINS"]
    data = begins["events"][0]["data"]
    assert (data["nb_resources"], data["nb_compute_resources"], data["nb_storage_resources"]) == (2, 2, 0)
    assert [resource["id"] for resource in data["compute_resources"]] == [0, 1]
    delay = {"type": "delay", "delay": 10.0}
    job = {"id": "w0!0", "subtime": 0.0, "walltime": 10.0, "res": 2, "profile": "0"}
    assert rest[0] == {
        "now": 0.0,
        "events": [at(0.0, "JOB_SUBMITTED", {"job_id": "w0!0", "job": job, "profile": delay})],
    }
    done = {"job_id": "w0!0", "job_state": "COMPLETED_SUCCESSFULLY", "return_code": 0, "alloc": "0 1"}
    assert rest[2] == {"now": 10.0, "events": [at(10.0, "JOB_COMPLETED", done)]}
    assert [event["type"] for message in rest[-2:] for event in message["events"]] == [
        "JOB_COMPLETED",
        "SIMULATION_ENDS",
    ]


def test_a_task_is_submitted_when_its_last_parent_is_done() -> None:
    graph = TaskGraph((Task("a", 2.0), Task("b", 5.0), Task("c", 1.0)), (Edge(0, 2), Edge(1, 2)))
    with scheduler(first_come(4)) as (endpoint, heard):
        ClusterKernel(machines(4), [Job("dag", graph)]).run(Batsim(endpoint))
    submitted = [
        (message["now"], event["data"]["job_id"])
        for message in heard
        for event in message["events"]
        if event["type"] == "JOB_SUBMITTED"
    ]
    assert submitted == [(0.0, "w0!0"), (0.0, "w0!1"), (5.0, "w0!2")]


def test_cores_are_the_resources_of_a_cluster_without_gpus() -> None:
    cluster = Cluster((Node("m", cpus=4),), "log")
    jobs = [Job.single(f"j{n}", Task("t", 5.0, gpus=0, cpus=1, instances=3, gang=True)) for n in range(2)]
    with scheduler(first_come(4)) as (endpoint, _):
        schedule = ClusterKernel(cluster, jobs).run(Batsim(endpoint))
    assert timeline(schedule) == timeline(ours("fifo", cluster, jobs))


def test_orders_are_carried_out_at_their_times_and_calls_come_when_asked() -> None:
    def answer(message: Message) -> Message:
        for event in message["events"]:
            if event["type"] == "JOB_SUBMITTED":
                return reply(message, at(2.0, "CALL_ME_LATER", {"timestamp": 7.0}), later_s=2.0)
            if event["type"] == "REQUESTED_CALL":
                return reply(message, at(7.5, "EXECUTE_JOB", {"job_id": "w0!0", "alloc": "0"}), later_s=0.5)
        return reply(message)

    with scheduler(answer) as (endpoint, heard):
        schedule = ClusterKernel(machines(1), [Job.single("a", Task("t", 1.0))]).run(Batsim(endpoint))
    assert timeline(schedule) == [("FINISHED", 8.5, 0), ("STARTED", 7.5, 0)]
    assert [message["now"] for message in heard] == [0.0, 0.0, 7.0, 8.5, 8.5]


def test_jobs_can_be_killed_and_rejected() -> None:
    def answer(message: Message) -> Message:
        match [(event["type"], event["data"].get("job_id")) for event in message["events"]]:
            case [("JOB_SUBMITTED", "w0!0"), ("JOB_SUBMITTED", "w0!1")]:
                return reply(
                    message,
                    at(0.0, "EXECUTE_JOB", {"job_id": "w0!0", "alloc": "0"}),
                    at(0.0, "REJECT_JOB", {"job_id": "w0!1"}),
                    at(0.0, "CALL_ME_LATER", {"timestamp": 4.0}),
                )
            case [("REQUESTED_CALL", None)]:
                return reply(message, at(4.0, "KILL_JOB", {"job_ids": ["w0!0"]}))
        return reply(message)

    jobs = [Job.single("a", Task("t", 10.0)), Job.single("b", Task("t", 1.0)), Job.single("c", Task("t", 1.0), 20.0)]
    with scheduler(answer) as (endpoint, heard), pytest.raises(Exception, match="c"):  # nobody starts the last job
        ClusterKernel(machines(1), jobs).run(Batsim(endpoint))
    killed = next(message for message in heard if message["now"] == 4.0 and len(message["events"]) == 2)
    assert [event["type"] for event in killed["events"]] == ["JOB_COMPLETED", "JOB_KILLED"]
    assert killed["events"][0]["data"]["job_state"] == "COMPLETED_KILLED"
    assert killed["events"][1]["data"]["job_progress"]["w0!0"]["progress"] == 0.4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda m: "hello", "which is not JSON"),
        (lambda m: [1], 'expected {"now"'),
        (lambda m: {"now": 0, "events": [{"type": "NOTIFY"}]}, "whose timestamp is not before"),
        (lambda m: reply(m, at(0, "SET_RESOURCE_STATE", {})), "sent 'SET_RESOURCE_STATE'; dagsim supports"),
        (lambda m: reply(m, at(0, "EXECUTE_JOB", {"job_id": "w0!0"})), "lacks a field"),
        (lambda m: reply(m, at(0, "EXECUTE_JOB", {"job_id": "w0!9", "alloc": "0"})), "which is not waiting"),
        (lambda m: reply(m, at(0, "EXECUTE_JOB", {"job_id": "w0!0", "alloc": "0-1"})), "2 resources; it needs 1"),
        (lambda m: reply(m, at(0, "EXECUTE_JOB", {"job_id": "w0!0", "alloc": "7"})), "between 0 and 1"),
        (
            lambda m: reply(m, at(0, "EXECUTE_JOB", {"job_id": "w0!0", "alloc": "0", "mapping": {}})),
            "EXECUTE_JOB with mapping",
        ),
        (lambda m: reply(m, at(0, "CALL_ME_LATER", {"timestamp": 0})), "not later than now"),
        (lambda m: reply(m, at(0, "KILL_JOB", {"job_ids": ["w0!0"]})), "which is not running"),
    ],
)
def test_a_message_that_is_wrong_or_unsupported_is_named(answer: Answer, message: str) -> None:
    def after_submission(heard: Message) -> Any:
        return answer(heard) if heard["events"][0]["type"] == "JOB_SUBMITTED" else reply(heard)

    with (
        scheduler(after_submission) as (endpoint, _),
        pytest.raises(PolicyFailed, match=r"batsim:tcp.* at 0 s") as fault,
    ):
        ClusterKernel(machines(2), [Job.single("a", Task("t", 1.0))]).run(Batsim(endpoint))
    assert message in str(fault.value)


UNEVEN = Cluster((Node("more", gpu_type("T4"), 2, 8, 16), Node("less", gpu_type("T4"), 2, 4, 32)))
"""Nodes with 4 and 2 CPUs and 8 and 16 GB for each GPU."""


@pytest.mark.parametrize(
    ("cluster", "task", "message"),
    [
        (Cluster.of({"T4": 1, "V100": 1}), Task("t", 1.0), "several types"),
        (Cluster.of({"T4": 1}), Task("t", 1.0, gpus=0.5), "only whole GPUs"),
        (Cluster.of({"T4": 1}), Task("t", 1.0, gpus=0, cpus=1), "only whole GPUs"),
        (Cluster.of({"T4": 2}, cpus_per_gpu=2), Task("t", 1.0, cpus=3), "counts GPUs only"),
        (UNEVEN, Task("t", 1.0, cpus=3), "needs 3 CPUs; 1 GPUs of a node come with 2"),
        (UNEVEN, Task("t", 1.0, memory_gb=9), "needs 9 GB of memory; 1 GPUs of a node come with 8"),
    ],
)
def test_a_workload_that_the_protocol_cannot_express_is_rejected(cluster: Cluster, task: Task, message: str) -> None:
    with scheduler(reply) as (endpoint, heard):
        with pytest.raises(PolicyFailed, match=message):
            ClusterKernel(cluster, [Job.single("a", task)]).run(Batsim(endpoint))
        if not heard:  # nothing was sent; let the thread end
            with zmq.Context() as context, context.socket(zmq.REQ) as peer:
                peer.connect(endpoint)
                peer.send_string(json.dumps({"now": 0, "events": [at(0, "SIMULATION_ENDS", {})]}))
                peer.recv()


def test_a_peer_that_is_silent_or_dead_ends_the_run_with_a_message(tmp_path: Path) -> None:
    jobs = [Job.single("a", Task("t", 1.0))]
    with pytest.raises(PolicyFailed, match=r"gave no reply at tcp://127.* within 0\.3 s"):
        ClusterKernel(machines(1), jobs).run(Batsim(free_endpoint(), timeout_s=0.3))
    program = f"{sys.executable} -SE -c 'raise SystemExit(3)'"
    with pytest.raises(PolicyFailed, match="ended with exit code 3"):
        ClusterKernel(machines(1), jobs).run(Batsim("tcp://127.0.0.1:*", start=program))


def test_an_endpoint_serves_one_simulation_at_a_time() -> None:
    jobs = [Job.single("a", Task("t", 1.0))]
    with (
        scheduler(first_come(1)) as (endpoint, _),
        pytest.raises(PolicyFailed, match="another simulation in this process is using tcp"),
    ):
        ClusterKernel(machines(1), jobs).run(_Meanwhile(Batsim(endpoint), Batsim(endpoint)))
    with pytest.raises(PolicyFailed, match="no reply"):  # the simulations before have given their turns back
        ClusterKernel(machines(1), jobs).run(Batsim(endpoint, timeout_s=0.2))


class _Meanwhile:
    """Asks one policy, and a second one during its simulation."""

    def __init__(self, first: Batsim, second: Batsim) -> None:
        self.policies = (first, second)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        for policy in self.policies:
            yield from policy.decide(view)


def test_endpoints_and_parameters_are_checked() -> None:
    for endpoint in ("28000", "http://x:1", "tcp://x", "tcp://x:*"):
        with pytest.raises(ConfigError, match="batsim:"):
            Batsim(endpoint)
    with pytest.raises(ConfigError, match="timeout_s"):
        Batsim("tcp://x:1", timeout_s=0)
    with pytest.raises(UnknownName, match="no-such-program"):
        Batsim("tcp://x:1", start="no-such-program")
    with pytest.raises(UnknownName, match="only schedule the system 'cluster'"):
        make_policy(scenario_of(load_config(None, ["system=spark"])), "batsim:tcp://x:1")
    with pytest.raises(UnknownName, match="no parameter 'time'"):
        make_policy(scenario_of(load_config(None)), "batsim[time=3]:tcp://x:1")


def test_a_file_cannot_name_a_scheduler(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text("pass", encoding="utf-8")
    spec = f"batsim[start='python3 {script}']:tcp://127.0.0.1:*"
    with allow(Allowed()), pytest.raises(CodeNotAllowed, match=r"security\.md"):
        make_policy(scenario_of(load_config(None)), spec)
    assert list(sources_of(load_config(None), spec)) == [("code", f"batsim:{script}", script)]


pybatsim = pytest.mark.skipif(find_spec("batsim") is None, reason="pybatsim is not installed")


def theirs(name: str, cluster: Cluster, jobs: list[Job], folder: Path) -> Schedule:
    """The schedule of a scheduler of pybatsim, started as its users start it."""
    options = shlex.quote(json.dumps({"export-prefix": str(folder / "out")}))
    start = f"{sys.executable} -m batsim.cmds.launcher {name} -v critical -t 20000 -o {options} -s {{endpoint}}"
    return ClusterKernel(cluster, jobs).run(Batsim("tcp://127.0.0.1:*", 30.0, start))


@pybatsim
@pytest.mark.parametrize(
    ("name", "policy", "resources", "widths"),
    [
        ("schedFcfs", "fifo", 8, (1, 8)),
        ("schedFiller", "fifo-fit", 8, (1, 8)),
        # With two resources, every free interval touches an edge of the reservation (see below).
        ("easyBackfill", "easy", 2, (1, 2)),
    ],
)
def test_schedulers_of_pybatsim_equal_ours(
    name: str, policy: str, resources: int, widths: tuple[int, ...], tmp_path: Path
) -> None:
    """Widths of 1 and of the whole cluster: a job that finds room finds it in one interval."""
    jobs = rigid(1, widths)
    assert timeline(theirs(name, machines(resources), jobs, tmp_path)) == timeline(
        ours(policy, machines(resources), jobs)
    )


def strict_queue_on_intervals(jobs: list[Job], resources: int) -> list[tuple[str, float, int]]:
    """First come, first served, where a job needs consecutive resources and takes the first such."""
    rows, running, free, now = [], [], [True] * resources, 0.0
    for number, job in enumerate(jobs):
        width = job.tasks[0].instances
        now = max(now, job.arrival_s)
        while True:
            for end_s, first, last in [run for run in running if run[0] <= now]:
                running.remove((end_s, first, last))
                free[first:last] = [True] * (last - first)
            place = next((n for n in range(resources - width + 1) if all(free[n : n + width])), None)
            if place is not None:
                break
            now = min(running)[0]
        end_s = now + job.tasks[0].work
        free[place : place + width] = [False] * width
        running.append((end_s, place, place + width))
        rows += [("STARTED", now, number), ("FINISHED", end_s, number)]
    return sorted(rows)


@pybatsim
def test_fcfs_of_pybatsim_differs_from_fifo_because_its_jobs_need_consecutive_resources(tmp_path: Path) -> None:
    jobs = rigid(2, (1, 2, 3, 5))
    schedule = timeline(theirs("schedFcfs", machines(8), jobs, tmp_path))
    assert schedule != timeline(ours("fifo", machines(8), jobs))
    expected = strict_queue_on_intervals(jobs, 8)
    assert [(kind, job) for kind, _, job in schedule] == [(kind, job) for kind, _, job in expected]
    assert [time_s for _, time_s, _ in schedule] == pytest.approx([time_s for _, time_s, _ in expected])


@pybatsim
def test_easy_of_pybatsim_differs_from_easy_because_it_does_not_protect_the_middle_of_a_reservation(
    tmp_path: Path,
) -> None:
    """A free interval that touches no edge of the reserved one is not limited by the reservation's
    start, so a backfilled job there can delay the first job. Up to the first difference both agree.
    """
    resources, jobs = 8, rigid(0, (1, 8))
    schedule = theirs("easyBackfill", machines(resources), jobs, tmp_path)
    both = [
        sorted({(row.time_s, row.job) for row in rows_of(one.log, Kind.STARTED)})
        for one in (schedule, ours("easy", machines(resources), jobs))
    ]
    time_s, job = next(mine for mine, other in zip(*both, strict=True) if mine != other)
    running = [row for row in schedule.log if row.kind == Kind.STARTED and row.time_s < time_s]
    ended = {row.run for row in schedule.log if row.kind == Kind.FINISHED and row.time_s <= time_s}
    busy = {row.node for row in running if row.run not in ended}
    node = next(row.node for row in schedule.log if row.kind == Kind.STARTED and row.job == job)
    assert jobs[job].tasks[0].instances == 1
    assert any(other in busy for other in range(node)), "its interval does not begin at resource 0"
    assert any(other in busy for other in range(node, resources)), "nor end at the last"


@pybatsim
def test_the_command_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "reference" / "batsim.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("$ dagsim"))
    words = shlex.split(line.replace("pybatsim", f"{sys.executable} -m batsim.cmds.launcher", 1))[2:]
    monkeypatch.chdir(tmp_path)  # pybatsim writes its events here
    result = fine(*words, "--set", "workload.count=50", "--set", "workload.measure=null")
    assert "run folder:" in result.output
