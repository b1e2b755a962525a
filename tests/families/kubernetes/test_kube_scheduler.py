"""The real kube-scheduler as a policy: with a small scheduler in its place, and with the real one where it is
(``DAGSIM_KUBE_SCHEDULER``).
"""

from __future__ import annotations

import copy
import heapq
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.process_states import alive

pytest.importorskip("uvicorn")

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, PolicyFailed, UnknownName
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import make_policy
from dagsim.families.kubernetes.kube.kube_scheduler import KubeScheduler
from dagsim.families.kubernetes.kube.scheduler_objects import node_manifest, valid_name
from dagsim.model import Cluster, Job, Node, Task, canonical_json
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.policy_spec import PolicyKind, PolicySpec, split_policies
from dagsim.testing import violations

FIRST_FIT = Path(__file__).with_name("first_fit_scheduler.py")
REAL = os.environ.get("DAGSIM_KUBE_SCHEDULER")
real = pytest.mark.skipif(not REAL, reason="DAGSIM_KUBE_SCHEDULER names no kube-scheduler")


@pytest.fixture
def fake(tmp_path: Path) -> str:
    return shell(tmp_path, f"exec {sys.executable} -SE {FIRST_FIT}")


def shell(folder: Path, line: str) -> str:
    path = folder / "scheduler"
    path.write_text(f'#!/bin/sh\n{line} "$@"\n')
    path.chmod(0o755)
    return str(path)


def machines(count: int, **size: Any) -> Cluster:
    return Cluster(tuple(Node(f"n{number:02}", **{"cpus": 4, "memory_gb": 16, **size}) for number in range(count)))


def plain(number: int, arrival_s: float, seconds: float = 100.0, priority: float = 0.0, **task: Any) -> Job:
    asked = Task("t", seconds, **{"cpus": 1, "memory_gb": 1, "gpus": 0, **task})
    return Job.single(f"j{number}", asked, arrival_s, priority=priority)


def play(binary: str, cluster: Cluster, jobs: list[Job], **settings: Any) -> list[tuple[str, float, int]]:
    policy = KubeScheduler(binary, **{"still_s": 0.3, **settings})
    schedule = ClusterKernel(cluster, jobs).run(policy)
    assert violations(schedule, jobs) == []
    return [
        (row.kind.name, round(row.time_s, 6), row.job)  # type: ignore[attr-defined]
        for row in schedule.log
        if row.kind.name in ("STARTED", "FINISHED", "PREEMPTED", "REJECTED")
    ]


@pytest.mark.parametrize("binary", ["fake", pytest.param("real", marks=real)])
def test_no_node_is_over_committed(binary: str, request: pytest.FixtureRequest) -> None:
    path = REAL if binary == "real" else request.getfixturevalue("fake")
    rng = random.Random(5)
    priorities = 3 if binary == "real" else 1  # the small scheduler preempts without care
    jobs = [
        plain(
            number,
            2.0 * number,
            rng.uniform(5, 60),
            float(rng.randrange(priorities)),
            cpus=rng.choice([0.5, 1, 2, 3.25]),
        )
        for number in range(30)
    ]
    assert len(play(path, machines(2), jobs)) >= 60  # play asks the checker of logs


def starts(rows: list[tuple[str, float, int]]) -> list[float]:
    return [time_s for kind, time_s, _ in rows if kind == "STARTED"]


def first_come(jobs: int, places: int, seconds: float) -> list[float]:
    """Start times of equal jobs, one a second, on so many places."""
    free, times = [0.0] * places, []
    for arrival in range(jobs):
        times.append(max(heapq.heappop(free), float(arrival)))
        heapq.heappush(free, times[-1] + seconds)
    return times


def test_equal_pods_start_as_the_formula_of_fifo_says(fake: str) -> None:
    rows = play(fake, machines(3), [plain(number, float(number)) for number in range(30)])
    assert starts(rows) == first_come(30, 12, 100.0)


@real
def test_the_real_scheduler_follows_the_formula_of_fifo() -> None:
    rows = play(REAL or "", machines(5), [plain(number, float(number)) for number in range(60)])
    assert starts(rows) == first_come(60, 20, 100.0)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, for the certificate of the metrics")
def test_a_scheduler_with_metrics_rests_as_soon_as_they_say_so(tmp_path: Path) -> None:
    certificate, public = tmp_path / "key.pem", tmp_path / "public.pem"
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost")
    words = ["openssl", "req", "-x509", *kind, "-keyout", certificate, "-out", public]
    subprocess.run(words, check=True, capture_output=True)
    certificate.write_text(certificate.read_text() + public.read_text())
    path = shell(tmp_path, f"METRICS={certificate} exec {sys.executable} -SE {FIRST_FIT}")
    # with still_s it would not come to rest at all
    rows = play(
        path, machines(3), [plain(number, float(number)) for number in range(30)], still_s=100.0, timeout_s=50.0
    )
    assert starts(rows) == first_come(30, 12, 100.0)


def preemption(binary: str, **settings: Any) -> list[tuple[str, float]]:
    cluster = machines(1, cpus=2)
    jobs = [plain(0, 0.0), plain(1, 1.0), plain(2, 10.0, 20.0, priority=1.0)]
    return [(kind, time_s) for kind, time_s, _ in play(binary, cluster, jobs, **settings)]


STORY = [("STARTED", 0), ("STARTED", 1), ("PREEMPTED", 10), ("STARTED", 10), ("FINISHED", 30), ("STARTED", 30)]


def test_a_preempted_pod_comes_back_as_another_one(fake: str) -> None:
    assert preemption(fake)[:6] == STORY


@real
@pytest.mark.parametrize("settings", [{}, {"restart_s": 5.0}, {"grace_s": 3.0}])
def test_the_real_scheduler_preempts_the_youngest(settings: dict[str, float]) -> None:
    rows = preemption(REAL or "", **settings)
    if "grace_s" in settings:
        assert ("PREEMPTED", 10) in rows
        assert ("STARTED", 13) in rows
        return
    assert rows[:6] == STORY


@pytest.mark.parametrize("binary", ["fake", pytest.param("real", marks=real)])
def test_a_gang_starts_with_its_last_pod_and_on_one_type(binary: str, request: pytest.FixtureRequest) -> None:
    path = REAL if binary == "real" else request.getfixturevalue("fake")
    gang = Job.single("g", Task("t", 10.0, instances=3, gang=True, gpus=1, cpus=1, memory_gb=1), 1.0)
    blocker = Job.single("b", Task("t", 20.0, gpus=2, cpus=1, memory_gb=1), 0.0)
    cluster = machines(2, gpu=Cluster.of({"T4": 1}).nodes[0].gpu, gpus=2)
    rows = play(path, cluster, [blocker, gang])
    assert list(dict.fromkeys(rows)) == [
        ("STARTED", 0, 0),
        ("FINISHED", 20, 0),
        ("STARTED", 20, 1),
        ("FINISHED", 30, 1),
    ]


def test_what_a_pod_cannot_be_is_an_error(fake: str) -> None:
    cluster = Cluster.of({"T4": 1})
    with pytest.raises(PolicyFailed, match=r"requests 0\.5 GPUs, but pods need whole GPUs"):
        play(fake, cluster, [plain(0, 0.0, gpus=0.5)])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("echo broken; exit 3", r"ended with exit code 3(.|\n)*broken"),
        ("exec sleep 30 #", "did not watch pods, nodes within 2 s"),
        (f"LINGER=1 exec {sys.executable} -SE {FIRST_FIT}", "left pods without a verdict within 2 s"),
        (f"QUIT=1 exec {sys.executable} -SE {FIRST_FIT}", r"ended with exit code 1(.|\n)*the first pod was too much"),
    ],
)
def test_a_program_that_fails_is_an_error_with_its_log(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(PolicyFailed, match=message):
        play(shell(tmp_path, line), machines(1), [plain(0, 0.0)], timeout_s=2.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("unknown", "at 0 s: the program bound the pod j0-0-0-1 to the node 'nowhere', which does not exist"),
        ("full", "at 0 s: the program bound the pod j1-0-0-2 to the node 'n00', which has no room for it"),
    ],
)
def test_a_wrong_binding_is_an_error(tmp_path: Path, wrong: str, message: str) -> None:
    path = shell(tmp_path, f"WRONG={wrong} exec {sys.executable} -SE {FIRST_FIT}")
    with pytest.raises(PolicyFailed, match=message):
        play(path, machines(1, cpus=1), [plain(0, 0.0), plain(1, 0.0)])


def test_requests_that_have_to_be_refused_change_nothing(tmp_path: Path, fake: str) -> None:
    told = tmp_path / "told"
    jobs = [plain(number, float(number)) for number in range(6)]
    right = play(fake, machines(1), jobs)
    path = shell(tmp_path, f"TOLD={told} WRONG=beside exec {sys.executable} -SE {FIRST_FIT}")
    assert play(path, machines(1), jobs) == right
    assert told.read_text().split() == ["409", "404", "400", "413", "400"] * len(jobs)


def test_wrong_parameters_are_errors(tmp_path: Path, fake: str) -> None:
    with pytest.raises(UnknownName, match="there is no program '/no/such'"):
        KubeScheduler("/no/such")
    with pytest.raises(ConfigError, match="the parameter binary is missing"):
        KubeScheduler()
    with pytest.raises(ConfigError, match="timeout_s"):
        KubeScheduler(fake, timeout_s=0)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: Pod\n")
    with pytest.raises(ConfigError, match="expected kind: KubeSchedulerConfiguration"):
        KubeScheduler(fake, config=str(wrong))
    with pytest.raises(ConfigError, match="cannot be read"):
        KubeScheduler(fake, config=str(tmp_path / "missing.yaml"))
    with pytest.raises(PolicyFailed, match="cannot be forked"):
        copy.deepcopy(KubeScheduler(fake))


def test_a_specification_names_the_program_with_and_without_an_address(fake: str) -> None:
    scenario = scenario_of(load_config(None))
    for spec in (f"kube-scheduler[binary={fake}]", f"kube-scheduler[timeout_s=5]:{fake}"):
        assert isinstance(make_policy(scenario, spec), KubeScheduler)
        assert PolicySpec.parse(spec).kind is PolicyKind.PROGRAM
    assert split_policies(["kube-scheduler[binary=/x,config=y],sjf"]) == ["kube-scheduler[binary=/x,config=y]", "sjf"]


def test_manifests_become_objects_again() -> None:
    labels = {"nvidia.com/gpu.product": "A100", "zone": "z"}
    carried = {"metadata": {"labels": labels}, "spec": {"unschedulable": True},
               "status": {"allocatable": {"pods": "110", "amd.com/gpu": "8"}}}  # fmt: skip
    gpu = Cluster.of({"T4": 1}).nodes[0].gpu
    node = Node("n", gpu, 8, 96.0, 1024.0, manifest=canonical_json(carried))
    object = node_manifest(node, 2, "nvidia.com/gpu")
    assert object["metadata"]["labels"] == {**labels, "kubernetes.io/hostname": "n", "dagsim/type": "2"}
    assert object["spec"] == {"unschedulable": True}
    amounts = {"pods": "110", "amd.com/gpu": "8", "cpu": "96000m", "memory": str(1024 << 30)}
    assert object["status"]["allocatable"] == amounts
    assert valid_name("Job 1/ä") == "job-1"


def children(pid: int) -> list[int]:
    text = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(word) for word in text.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="a process that is killed takes its program with it on Linux")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_kill_leaves_no_process_and_no_folder(fake: str, tmp_path: Path, number: int) -> None:
    before = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    words = [sys.executable, "-m", "dagsim", "eval", "--policy", f"kube-scheduler[binary={fake}]", "--seeds", "2",
             "--no-plots", "--workers", "1", "--set", "workload.count=500", "--out", str(tmp_path / "run")]  # fmt: skip
    process = subprocess.Popen(words, env=before, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    programs: list[int] = []
    while not programs and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
        programs = [pid for pid in descendants(process.pid) if FIRST_FIT.name in command_of(pid)]
    assert programs, "the program never started"
    process.send_signal(number)
    process.wait(30)
    deadline = time.monotonic() + 10
    while any(map(alive, programs)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, programs))
    assert [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith("dagsim-")] == []


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return [*found, *[deeper for child in found for deeper in descendants(child)]]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


_PLAY = """
import sys
from dagsim.families.kubernetes.kube.kube_scheduler import KubeScheduler
from dagsim.model import Cluster, Job, Node, Task
from dagsim.systems.cluster import ClusterKernel
jobs = [Job.single(f"j{at}", Task("t", 5.0, cpus=1, memory_gb=1, gpus=0), float(at)) for at in range(2000)]
cluster = Cluster((Node("n", cpus=4, memory_gb=16),))
ClusterKernel(cluster, jobs).run(KubeScheduler(sys.argv[1], still_s=0.05))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a process that is killed takes its program with it on Linux")
def test_twenty_kills_at_any_moment_leave_no_process_and_no_file(fake: str, tmp_path: Path) -> None:
    rng, left = random.Random(3), tmp_path / "tmp"
    left.mkdir()
    signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGKILL]
    for _ in range(5):
        batch = [
            subprocess.Popen([sys.executable, "-c", _PLAY, fake], env={**os.environ, "TMPDIR": str(left)},
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in signals
        ]  # fmt: skip
        programs: dict[int, set[int]] = {process.pid: set() for process in batch}
        deadline = time.monotonic() + 60
        while not all(programs.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
            for pid, its in programs.items():
                its |= {child for child in children(pid) if FIRST_FIT.name in command_of(child)}
        assert all(programs.values())
        for process, number in zip(batch, signals, strict=True):
            time.sleep(rng.uniform(0, 0.3))
            process.send_signal(number)
        for process in batch:
            process.wait(30)
        deadline = time.monotonic() + 10
        running = [pid for its in programs.values() for pid in its]
        while any(map(alive, running)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(alive, running))
        assert list(left.iterdir()) == []


def test_workers_side_by_side_each_have_a_program_of_their_own(fake: str, tmp_path: Path) -> None:
    config = tmp_path / "pool.yaml"  # of one type, as the small scheduler knows no affinity
    config.write_text("cluster: {groups: [{name: t4, count: 4, gpu: T4, gpus: 8, cpus: 96, memory_gb: 512}]}\n")

    def results(workers: int) -> str:
        out = tmp_path / f"run{workers}"
        words = [sys.executable, "-m", "dagsim", "eval", "--policy", f"kube-scheduler[binary={fake}]", "--seeds", "4",
                 "--no-plots", "--workers", str(workers), "--config", str(config), "--set", "workload.count=8",
                 "--out", str(out)]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("run folder")[0]

    assert results(3) == results(1)
