"""``dagsim calibrate`` on logs whose rules are known."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.command_line import fine, invoke

from dagsim.config.schema import load_config
from dagsim.model import Caps, Cluster, Job, Kind, Node, QueueNode, QueueTree, Task
from dagsim.model.gpu import gpu_type
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

pytestmark = pytest.mark.family("slurm")  # the logs are Slurm's, and so is the policy

HEADS = "JobIDRaw|User|Account|Partition|State|Submit|Eligible|Start|End|TimelimitRaw|NNodes|NCPUS|AllocTRES|NodeList"
STATED = {"order": "basic", "gangs": "packed", "place": "first", "bf_ties": "wait", "kill": "never", "bf_phase_s": 0}
STATED |= {"bf_interval_s": 30, "sched_min_interval_s": 0, "requeue_delay_s": 121, "calc_phase_s": 0, "age": 0}
STATED |= {"fair_share": 0, "job_size": 0}
BEGIN_S = 1_767_600_000


def write_site(folder: Path, queues: QueueTree, count: int = 240) -> None:
    """Play jobs of two accounts on two nodes under ``queues``; write the log, and a site without limits."""
    rng, now, jobs = random.Random(4), 0.0, []
    for number in range(count):
        now += round(rng.expovariate(1 / 150))
        seconds = 30.0 * rng.randrange(4, 40)
        task = Task("t", seconds, 1, False, rng.choice((1, 1, 2)), 1.0, estimate=60.0 * (int(seconds / 60) + 5))
        account = rng.choice(("lab", "hub"))
        jobs.append(Job.single(str(number), task, now, user=f"{account}1", account=account, tenant=account))
    nodes = Cluster(tuple([Node(f"n{at}", gpu_type("T4"), 4, 64, 512) for at in range(2)]))
    schedule = ClusterScenario(nodes, jobs, queues=queues).kernel(0).run(POLICIES.create("slurm-multifactor"))
    starts = {row.job: (BEGIN_S + round(row.time_s), row.node) for row in schedule.log if row.kind == Kind.STARTED}
    lines = [HEADS]
    for number, job in enumerate(jobs):
        (task,), (start_s, node) = job.tasks, starts[number]
        at_s, gpus = BEGIN_S + round(job.arrival_s), int(task.gpus)
        lines.append(
            f"{number}|{job.user}|{job.account}|gpu|COMPLETED|{at_s}|{at_s}|{start_s}|{start_s + round(task.work)}"
            f"|{round((task.estimate or 0) / 60)}|1|1|cpu=1,gres/gpu:t4={gpus},gres/gpu={gpus},node=1|n{node}"
        )
    (folder / "sacct.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    groups = [{"name": "n", "hosts": "n[0-1]", "gpu": "T4", "gpus": 4, "cpus": 64, "memory_gb": 512}]
    site = {"cluster": {"groups": groups}, "queues": {"scheduler": STATED}, "policy": "slurm-multifactor"}
    (folder / "site.yaml").write_text(json.dumps(site), encoding="utf-8")


def calibrated(folder: Path, *more: str) -> dict[str, Any]:
    words = ["calibrate", "--trace", folder / "sacct.txt", "--config", folder / "site.yaml", "--json", *more]
    return dict(json.loads(fine(*words).stdout))


def test_a_limit_that_no_file_states_is_found_and_shortens_the_error_of_the_rest(tmp_path: Path) -> None:
    limit = QueueTree((QueueNode("lab", limits=Caps(gpus=2)),), scheduler=STATED)
    write_site(tmp_path, limit)
    result = calibrated(tmp_path, "-o", str(tmp_path / "fitted.yaml"))
    assert (result["jobs"], result["fitted"], result["kept"]) == (240, 120, {"limits[lab].gpus": 2.0})
    assert result["carries_over"]
    error = {
        when: abs(result[when]["total"]["simulated_s"]["mean"] / result[when]["total"]["observed_s"]["mean"] - 1)
        for when in ("before", "after")
    }
    assert error["before"] > 0.5
    assert error["after"] < 0.02
    fitted = load_config(tmp_path / "fitted.yaml").queues
    assert fitted is not None
    assert fitted.tree[0].limits == Caps(gpus=2)


def test_parameters_that_the_site_states_are_not_tried(tmp_path: Path) -> None:
    write_site(tmp_path, QueueTree(scheduler=STATED))
    result = calibrated(tmp_path)
    assert (result["trials"], result["kept"], result["before"]) == ([], {}, result["after"])
    assert result["after"]["median_abs_log_ratio"] == 0


def test_a_log_that_is_too_short_is_refused(tmp_path: Path) -> None:
    write_site(tmp_path, QueueTree(scheduler=STATED), 30)
    ended = invoke("calibrate", "--trace", tmp_path / "sacct.txt", "--config", tmp_path / "site.yaml")
    assert ended.exit_code == 2
    assert "needs at least 20 jobs, got 30 in all" in " ".join(ended.output.split())
