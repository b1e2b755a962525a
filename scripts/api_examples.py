"""Examples for the reference page of the Python API, which ``reference.py`` generates."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "simulate": """from dagsim import simulate

outcome = simulate("steady", {"A100-40": 16}, "easy", seed=3)
print(outcome.summary.jct_s.mean)""",
    "Outcome": """from dagsim import simulate

outcome = simulate(policy="sjf")
print(len(outcome.schedule.log), outcome.summary.utilization)""",
    "summarize": """from dagsim import simulate, summarize

outcome = simulate(policy="srtf")
print(summarize(outcome.schedule, measured=(10, None)).bounded_slowdown.p95)""",
    "Summary": """from dagsim import simulate

summary = simulate(policy="fifo").summary
print(summary.wait_s.mean, summary.to_dict()["queueing_s.p99"])""",
    "compare": """from dagsim import compare

for result in compare("results/RUN_A", "results/RUN_B"):
    print(result.policy, result.mean.value, result.words)""",
    "replay": """from dagsim import replay

outcome = replay("workloads/site/sacct.txt.gz", "easy", "cluster.yaml")
print(outcome.summary.wait_s.p95)""",
    "plan": """from dagsim import plan

planned = plan("sacct.txt", "wait_s.p95<2h", ["H200"], cluster="cluster.yaml", policy="easy")
print(planned.search.best)""",
    "train": """from dagsim import train

trained = train("train/ppo", ["train.iterations=100"])
print(trained.validation_ratio)""",
    "Job": """from dagsim import Job, Task, simulate

jobs = [Job.single(f"job-{n}", Task("train", 3600.0, 8, gang=True), arrival_s=60.0 * n) for n in range(9)]
print(simulate(jobs, {"A100-40": 16}).summary.makespan_s)""",
    "Task": """from dagsim import Task

Task("train", 3600.0, 8, gang=True, gpu_types=("A100-40", "H100"))  # 8 GPUs for an hour, of either type""",
    "TaskGraph": """from dagsim import Edge, Job, Task, TaskGraph

graph = TaskGraph((Task("prepare", 60.0), Task("train", 600.0), Task("test", 30.0)), (Edge(0, 1), Edge(1, 2)))
Job("chain", graph)""",
    "Edge": """from dagsim import Edge

Edge(0, 1, 2e9)  # task 1 begins after task 0, whose 2 GB it needs""",
    "Cluster": """from dagsim import Cluster, Node, simulate
from dagsim.model import GPU_TYPES

nodes = tuple(Node(f"n{n}", GPU_TYPES["A100-40"], 8, cpus=96, memory_gb=1024) for n in range(4))
print(simulate(cluster=Cluster(nodes)).summary.utilization)""",
    "Node": """from dagsim import Node
from dagsim.model import GPU_TYPES

Node("n0", GPU_TYPES["H100"], 8, cpus=96, memory_gb=1024)""",
    "GpuType": """from dagsim.model import GPU_TYPES

print(GPU_TYPES["H100"].fp16_tflops)""",
    "Synthetic": """from dagsim import Synthetic, simulate

print(simulate(Synthetic(count=200, load=0.7), policy="sjf").summary.jct_s.mean)""",
    "PRESETS": """from dagsim import PRESETS

print(sorted(PRESETS))""",
    "POLICIES": """from dagsim import POLICIES, simulate

for name in POLICIES.names()[:3]:
    print(name, simulate(policy=name).summary.jct_s.mean)""",
    "ClusterPolicy": """from dagsim import Start, simulate


class Oldest:
    def decide(self, view):
        for task in view.ready:
            if placement := view.fit(task):
                yield Start(task, placement)


print(simulate(policy=Oldest()).summary.jct_s.mean)""",
    "Preempt": """from dagsim import Preempt, Start, simulate


class YoungestFirst:
    def decide(self, view):
        for task in reversed(view.ready):
            if placement := view.fit(task):
                yield Start(task, placement)
                return
            for run in view.running.values():
                if run.started_s < view.now - 3600:
                    yield Preempt(run.id)
                    return


print(simulate(policy=YoungestFirst()).summary.preemptions)""",
    "Start": """from dagsim import Start, simulate


class ShortestFirst:
    def decide(self, view):
        for task in sorted(view.ready, key=lambda task: task.best_s):
            if placement := view.fit(task):
                yield Start(task, placement)


print(simulate(policy=ShortestFirst()).summary.jct_s.mean)""",
    "Share": """from dagsim import Share

placement = (Share(0, 2), Share(1, 2))  # two instances on node 0 and two on node 1
shared = (Share(0, gpu=3),)  # an instance that needs a fraction of a GPU, on GPU 3 of node 0""",
    "Wait": """from dagsim import Start, Wait, simulate


class EveryTenMinutes:
    def decide(self, view):
        if view.now % 600 == 0:
            for task in view.ready:
                if placement := view.fit(task):
                    yield Start(task, placement)
        yield Wait(600 * (view.now // 600 + 1))


print(simulate(policy=EveryTenMinutes()).summary.wait_s.mean)""",
    "Admit": """from dagsim import POLICIES, Admit, Cluster, Job, Reject, Task
from dagsim.systems.cluster.scenario import ClusterScenario


class AtMostTen:
    def __init__(self):
        self.order = POLICIES.create("fifo")

    def decide(self, view):
        for number in list(view.applicants):
            yield Admit(number) if len(view.jobs) < 10 else Reject(number)
        yield from self.order.decide(view)


jobs = [Job.single(f"job-{n}", Task("train", 60.0)) for n in range(20)]
schedule = ClusterScenario(Cluster.of({"T4": 2}), jobs, admission=True).kernel(0).run(AtMostTen())
print(schedule.ended_s)""",
    "Migrate": """from dagsim import Cluster, ClusterKernel, Job, Migrate, Share, Start, Task, Wait


class Mover:
    def decide(self, view):
        for task in view.ready:
            yield Start(task, (Share(0),))
            yield Wait(30.0)
        for run in list(view.running.values()) if view.now == 30.0 else ():
            yield Migrate(run.id, (Share(1),))


cluster = Cluster.of({"T4": 1, "V100-16": 1})
print(ClusterKernel(cluster, [Job.single("a", Task("train", 60.0))]).run(Mover()).ended_s)""",
    "ClusterKernel": """from dagsim import POLICIES, Cluster, ClusterKernel, Job, Task

kernel = ClusterKernel(Cluster.of({"T4": 2}), [Job.single("a", Task("train", 60.0))])
schedule = kernel.run(POLICIES.create("fifo"))
print(schedule.ended_s, kernel.done)""",
    "ClusterView": """from dagsim import Start, simulate


class Watching:
    def decide(self, view):
        print(view.now, len(view.jobs), len(view.ready), len(view.running))
        for task in view.ready:
            if placement := view.fit(task):
                yield Start(task, placement)


simulate(policy=Watching())""",
    "Schedule": """from dagsim import simulate

schedule = simulate(policy="sjf").schedule
print(schedule.cluster.gpus, len(schedule.jobs), schedule.ended_s)
for row in list(schedule.log)[:3]:
    print(row.time_s, row.kind, row.job)""",
    "DagsimError": """from dagsim import DagsimError, simulate

try:
    simulate(policy="shortest")
except DagsimError as error:
    print(error)""",
    "drive": """from dagsim import POLICIES, Cluster, ClusterKernel, Job, Task
from dagsim.systems.seam import drive

kernel = ClusterKernel(Cluster.of({"T4": 2}), [Job.single("a", Task("train", 60.0))])
print(drive(kernel, POLICIES.create("fifo"), until_s=30.0).ended_s)""",
    "chain": """from dagsim import Job, simulate
from dagsim.testing import chain

print(simulate([Job("chain", chain(1.0, 2.0, 3.0))]).summary.makespan_s)""",
    "diamond": """from dagsim.testing import diamond

print(diamond(first=1.0, left=2.0, right=5.0, last=1.0).depth())""",
    "fork_join": """from dagsim.testing import fork_join

print(fork_join(3).names)""",
    "heft_example": """from dagsim.testing import heft_example

print(heft_example().depth())""",
    "random_case": """from dagsim import POLICIES
from dagsim.testing import random_case

print(random_case(3).play(lambda: POLICIES.create("fifo")).ended_s)""",
    "check_policy": """from dagsim import Start
from dagsim.testing import check_policy


class Oldest:
    def decide(self, view):
        for task in view.ready:
            if placement := view.fit(task):
                yield Start(task, placement)


check_policy(Oldest, workloads=1)""",
    "check_network": """from dagsim.systems.cluster import UniformNetwork
from dagsim.testing import check_network

check_network(UniformNetwork(bandwidth_gb_s=1.0), workloads=1)""",
    "violations": """from dagsim import Job, Task, simulate
from dagsim.testing import violations

jobs = [Job.single("a", Task("train", 60.0))]
print(violations(simulate(jobs).schedule, jobs))""",
    "gpu_type": """from dagsim.model import gpu_type

print(gpu_type("H100").memory_gb)""",
    "Request": """from dagsim import Job, Task
from dagsim.model import Request

Job.single("a", Task("train", 60.0, 8), request=Request(constraint="a100|v100", after=("prepare",)))""",
    "OnDemand": """from dagsim import Node
from dagsim.model import OnDemand, gpu_type

Node("cloud-0", gpu_type("A100-40"), 8, cpus=96, memory_gb=1024, on_demand=OnDemand(boot_s=300.0))""",
    "QueueTree": """from dagsim.model import Caps, QueueNode, QueueTree

queues = QueueTree((QueueNode("vision", weight=2.0), QueueNode("speech", limits=Caps(gpus=16))))
print(sorted(queues.names()))""",
    "NodePartition": """from dagsim.model import NodePartition

NodePartition("debug", nodes=("n0", "n1"), max_time_s=1800.0, priority=10.0)""",
    "Qos": """from dagsim.model import Caps, Qos

Qos("urgent", priority=1000.0, user_limits=Caps(gpus=8))""",
    "NodeReservation": """from dagsim.model import NodeReservation

NodeReservation("course", nodes=("n0",), start_s=0.0, end_s=7200.0, users=("ann",))""",
    "Record": """from dagsim import simulate
from dagsim.model import Kind

rows = simulate(policy="fifo").schedule.log
print([row.time_s for row in rows if row.kind == Kind.COMPLETED][:3])""",
    "RejectReason": """from dagsim.model import RejectReason

print(RejectReason.TOO_LARGE.words)""",
    "JobFacts": """from dagsim import simulate

job = simulate(policy="fifo").schedule.jobs[0]
print(job.id, job.arrival_s, job.ideal_s)""",
    "ScheduleLog": """from dagsim import simulate

print(simulate(policy="fifo").schedule.log.rows()["time_s"].max())""",
    "ConfigError": """from dagsim.config.schema import load_config
from dagsim.errors import ConfigError

try:
    load_config(settings=["seeds=0"])
except ConfigError as error:
    print(error)""",
    "TraceError": """from dagsim.errors import TraceError
from dagsim.traces import open_trace

try:
    open_trace("no-such-log.csv")
except TraceError as error:
    print(error)""",
    "IllegalDecision": """from dagsim import Share, Start, simulate
from dagsim.errors import IllegalDecision


class Impossible:
    def decide(self, view):
        for task in view.ready:
            yield Start(task, (Share(99),))


try:
    simulate(policy=Impossible())
except IllegalDecision as error:
    print(error)""",
    "Stalled": """from dagsim import simulate
from dagsim.errors import Stalled


class Idle:
    def decide(self, view):
        return ()


try:
    simulate(policy=Idle())
except Stalled as error:
    print(error)""",
    "Conversation": """from dagsim import Cluster, ClusterKernel, Job, Start, Task
from dagsim.systems.seam import Conversation

kernel = ClusterKernel(Cluster.of({"T4": 2}), [Job.single("a", Task("train", 60.0))])
conversation = Conversation(kernel)
while (view := conversation.view) is not None:
    conversation.answer([Start(task, view.fit(task)) for task in view.ready])
print(kernel.schedule.ended_s)""",
    "CountedJobs": """from dagsim import Job, Task
from dagsim.systems.seam import CountedJobs

jobs = [Job.single(f"job-{n}", Task("train", 60.0)) for n in range(1200)]
print(len(list(CountedJobs(jobs, lambda so_far: print("read", so_far)))))""",
    "EngineUse": """from dagsim.config.schema import load_config
from dagsim.experiment.simulate import run_policy

outcome = run_policy(load_config(settings=["engine=simpy"]), "sjf", 1)
print(outcome.engine)""",
    "Attempt": """from dagsim import Job, Task
from dagsim.model import Attempt

first = Attempt(eligible_s=0.0, start_s=30.0, end_s=90.0, nodes=("n0",))  # it failed after 60 s
last = Attempt(eligible_s=90.0, start_s=200.0, end_s=500.0, nodes=("n3",))
Job.single("a", Task("train", 300.0), observed_attempts=(first, last))""",
    "canonical_json": """from dagsim.model import canonical_json

assert canonical_json({"b": 1, "a": [2.0]}) == canonical_json({"a": [2.0], "b": 1})""",
    "Condition": """from dagsim import Job, Task
from dagsim.model import Request

request = Request(after=("after:prepare+10",))  # 10 minutes after the start of the job "prepare"
print(Job.single("a", Task("train", 60.0), request=request).request)""",
    "Demand": """from dagsim.model import Demand

Demand(gpus=2, cpus=16, memory_gb=64, gpu_types=("A100-40", "H100"))""",
    "InFlight": """from dagsim import Cluster, Job, Share, Task, simulate
from dagsim.model import InFlight

running = InFlight(since_s=0.0, placement=(Share(0),))  # it runs on node 0 when the simulation begins
jobs = [Job.single("a", Task("train", 60.0), in_flight=(running,))]
print(simulate(jobs, Cluster.of({"T4": 1})).schedule.ended_s)""",
    "JobCaps": """from dagsim.model import JobCaps, QueueNode, QueueTree

QueueTree((QueueNode("short", job_limits=JobCaps(gpus=4, minutes={"gpus": 240})),))""",
    "JobSuspension": """from dagsim.model import JobSuspension

JobSuspension("4711", start_s=600.0, end_s=1200.0)""",
    "NodeOutage": """from dagsim.model import NodeOutage

NodeOutage(("n0", "n1"), start_s=3600.0, end_s=7200.0, kind="down")""",
    "TimeLimits": """from dagsim.model import TimeLimits

print(TimeLimits(default_s=3600.0, most_s=86_400.0).unstated_s)""",
    "Kill": """from dagsim import Start, Wait, simulate
from dagsim.model import Kill


class NotAfterADay:
    def decide(self, view):
        for number, job in view.jobs.items():
            if view.now >= job.job.arrival_s + 86_400:
                yield Kill(number)
        for task in view.ready:
            if placement := view.fit(task):
                yield Start(task, placement)
        yield Wait(view.now + 3600)


print(simulate(policy=NotAfterADay()).summary.jobs_killed)""",
    "FactColumns": """from dagsim import simulate

columns = simulate(policy="fifo").schedule.jobs
print(type(columns).__name__, len(columns), columns[3].id)""",
    "GraphError": """from dagsim import Edge, Task, TaskGraph
from dagsim.errors import GraphError

try:
    TaskGraph((Task("a", 1.0), Task("b", 1.0)), (Edge(0, 1), Edge(1, 0)))
except GraphError as error:
    print(error)""",
    "ModelError": """from dagsim import Task
from dagsim.errors import ModelError

try:
    Task("train", work=-1.0)
except ModelError as error:
    print(error)""",
    "NotRecognised": """from pathlib import Path
from tempfile import TemporaryDirectory

from dagsim.errors import NotRecognised
from dagsim.traces import open_trace

with TemporaryDirectory() as folder:
    file = Path(folder, "letter.txt")
    file.write_text("Dear reader\\n")
    try:
        open_trace(file)
    except NotRecognised as error:
        print(error)""",
    "NestedTooDeeply": """from dagsim.errors import NestedTooDeeply
from dagsim.model import Request

try:
    Request(constraint="(" * 500 + "a100" + ")" * 500)
except NestedTooDeeply as error:
    print(str(error)[:100])""",
    "RunFolderError": """from dagsim import compare
from dagsim.errors import RunFolderError

try:
    compare("results/NO_SUCH_RUN")
except RunFolderError as error:
    print(error)""",
    "WorkloadError": """from dagsim import Synthetic, simulate
from dagsim.errors import WorkloadError

try:
    simulate(Synthetic(count=10, load=0.0))
except WorkloadError as error:
    print(error)""",
    "check_codec": """from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.testing import check_codec

print(CandidatesConfig().features)""",
    "Blocking": """from dagsim.model import RejectReason
from dagsim.systems.seam import Blocking

Blocking("acceptance", (RejectReason.NO_PLACE,))  # what System.blocking may return""",
    "CodecSettings": """from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.systems.seam import CodecSettings

settings: CodecSettings = CandidatesConfig()
print(settings.features["tokens"][:3])""",
    "CodeNotAllowed": """from dagsim.errors import CodeNotAllowed
from dagsim.own_code import Allowed

try:
    Allowed().check("metric", "my_module:my_metric")
except CodeNotAllowed as error:
    print(error)""",
    "Engaged": """from dagsim.config.schema import load_config
from dagsim.experiment.scenario import scenario_of

engaged = scenario_of(load_config()).engaged("sjf", 0)
print(type(engaged.kernel).__name__, engaged.engine)""",
    "FetchError": """from pathlib import Path

from dagsim.errors import FetchError
from dagsim.traces.fetch import PublishedTrace, fetch

try:
    fetch(PublishedTrace("mine", "my own log", "https://example.org", ()), Path("."))
except FetchError as error:
    print(error)""",
    "HidesTruth": """from dagsim import Cluster, ClusterKernel, Job, Task
from dagsim.systems.seam import HidesTruth

kernel = ClusterKernel(Cluster.of({"T4": 2}), [Job.single("a", Task("train", 60.0))])
assert isinstance(kernel, HidesTruth)
kernel.show_truth()  # policies now see true durations instead of estimates""",
    "Pace": """from dagsim.model import Pace

Pace(rate=2.0, until=100.0)  # two samples per second, until 100 samples are done""",
    "PluginError": """from pathlib import Path
from tempfile import TemporaryDirectory

from dagsim.config.schema import load_config
from dagsim.errors import PluginError
from dagsim.experiment.simulate import run_policy

with TemporaryDirectory() as folder:
    file = Path(folder, "mine.py")
    file.write_text("import no_such_package")
    try:
        run_policy(load_config(), f"{file}:Mine", 1)
    except PluginError as error:
        print(error)""",
    "PolicyFailed": """from pathlib import Path
from tempfile import TemporaryDirectory

from dagsim.config.schema import load_config
from dagsim.errors import PolicyFailed
from dagsim.experiment.simulate import run_policy

with TemporaryDirectory() as folder:
    file = Path(folder, "broken.py")
    file.write_text("class Broken:\\n    def decide(self, view):\\n        return 1 / 0")
    try:
        run_policy(load_config(), f"{file}:Broken", 1)
    except PolicyFailed as error:
        print(error)""",
    "RewardTerm": """from dagsim.systems.seam import RewardTerm


class Seconds:
    last_s = 0.0

    def cost(self, now: float) -> float:
        passed_s, self.last_s = now - self.last_s, now
        return passed_s


term: RewardTerm = Seconds()
print(term.cost(30.0), term.cost(50.0))""",
    "System": """from dagsim.config.schema import load_config

system = load_config(settings=["system.kind=spark"]).whole_system
print(system.system, system.sample)""",
}
"""Short programs by the name that they show. ``tests/docs/test_reference.py`` runs those that need no files."""
ELSEWHERE = {
    "Caps": "Qos",
    "check_env": "../own-system.md",
    "check_system": "../own-system.md",
    "Codec": "../training-parts.md",
    "decisions_of": "../own-system.md",
    "Elastic": "../elastic.md",
    "InputError": "ConfigError",
    "Join": "../elastic.md",
    "Kernel": "ClusterKernel",
    "Kind": "Record",
    "Policy": "ClusterPolicy",
    "PowerState": "OnDemand",
    "QueueNode": "QueueTree",
    "Reject": "Admit",
    "Resize": "../elastic.md",
    "Scenario": "../own-system.md",
    "SimulationError": "Stalled",
    "TrainingModel": "../elastic.md",
    "TrainingState": "../elastic.md",
    "UnknownName": "DagsimError",
    "View": "ClusterView",
}
"""Names that occur in the example of another name, or on another page."""
