"""Where a log contradicts the site: what the simulation would reject is found before it, with a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command_line import invoke

from dagsim.model import (
    Caps,
    Cluster,
    Job,
    JobCaps,
    Node,
    NodePartition,
    Qos,
    QueueNode,
    QueueTree,
    Request,
    Task,
    TaskGraph,
    gpu_type,
)
from dagsim.systems.cluster.audit.audit import Audit
from dagsim.systems.cluster.audit.auditor import Auditor
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.waits.wait_rules import Excess, as_one_reason
from dagsim.systems.seam import Conversation
from dagsim.traces.report import CONTRADICTIONS
from dagsim.workload.arrays import JobArrays

V100, T4 = gpu_type("V100-16"), gpu_type("T4")
NODES = (
    Node("v1", V100, 4, 32, 128, ("fast",)),
    Node("v2", V100, 4, 32, 256, ("fast", "large")),
    Node("t1", T4, 2, 16, 64),
    Node("c1", None, 0, 64, 512),
)
QUEUES = QueueTree(
    partitions=(NodePartition("main"), NodePartition("small", ("t1", "c1"))),
    tree=(QueueNode("physics"), QueueNode("biology")),
    qos=(Qos("normal"), Qos("urgent")),
)


def job(number: int, *, work: float = 3600.0, **of: object) -> Job:
    names = ("gpus", "cpus", "instances", "gang", "memory_gb", "gpu_types")
    task = {name: of.pop(name) for name in names if name in of}
    return Job(f"j{number}", TaskGraph((Task("job", work, **{"gpus": 0.0, **task}),)), float(number), **of)  # type: ignore[arg-type]


def audit(jobs: list[Job], cluster: Cluster | None = None, queues: QueueTree | None = QUEUES) -> Audit:
    auditor = Auditor(cluster or Cluster(NODES), queues, Recorded())
    auditor.add(JobArrays.of(jobs))
    return auditor.audit()


def said(jobs: list[Job]) -> str:
    return " | ".join(audit(jobs).sentences())


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"gpus": 8}, "8 GPUs on one node, where the largest has 4 (1 job: j0)"),
        ({"cpus": 65}, "65 CPUs on one node, where the largest has 64 (1 job: j0)"),
        ({"memory_gb": 600.0}, "600 GB of memory on one node, where the largest has 512 (1 job: j0)"),
        ({"gpus": 4, "cpus": 40}, "40 CPUs on one node, where the largest has 32"),
        ({"gpus": 1, "gpu_types": ("A100-40",)}, "no node has a GPU of type A100-40"),
        ({"gpus": 4, "instances": 3, "gang": True}, "3 instances at once, more than fit on the nodes (1 job: j0)"),
        ({"gpus": 4, "partition": "small"}, "4 GPUs on one node, where the largest of partition small has 2"),
        ({"cpus": 1, "request": Request("huge")}, "no node with the features huge"),
    ],
)
def test_a_job_that_can_never_run_is_named_with_the_reason(asked: dict[str, object], reason: str) -> None:
    others = [job(at, cpus=1, partition="main") for at in range(1, 10)]
    text = said([job(0, **{"partition": "main", **asked}), *others])  # type: ignore[arg-type]
    assert text.startswith("warning: 1 of 10 jobs (10%")
    assert f"ran in the log but can never run here: {reason}" in text


def test_shares_are_of_jobs_and_of_the_hours_that_the_log_has_most_of() -> None:
    few = [job(0, cpus=100, work=36_000.0), *[job(at, cpus=10) for at in range(1, 300)]]
    text = said(few)
    assert text.startswith("warning: 1 of 300 jobs (0.33%, 25% of the core-hours)")
    assert "100 CPUs on one node, where the largest has 64 (1 job: j0)" in text
    small = audit([job(0, cpus=100, work=3.6), *[job(at, cpus=10) for at in range(1, 300)]])
    assert (small.sentences(), len(small.sentences(urgent=False))) == ([], 1)


def test_nodes_are_compared_with_what_jobs_held_of_them() -> None:
    jobs = [
        job(0, gpus=4, observed_nodes=("t1",), observed_gpu="T4"),
        job(1, gpus=1, observed_nodes=("v1",), observed_gpu="T4"),
        job(2, gpus=1, observed_nodes=("x9",)),
        job(3, gpus=4, instances=2, gang=True, observed_nodes=("v1", "v2"), observed_gpu="V100-16"),
    ]
    text = said(jobs)
    assert "used more of a node's resources than it has here: 4 GPUs of t1, which has 2 (1 job: j0)" in text
    assert "ran on other GPU types than their nodes have here: T4 of v1, which has V100-16 (1 job: j1)" in text
    assert "ran on nodes that the cluster lacks: x9 (1 job: j2)" in text
    assert "j3" not in text


def test_a_job_that_ran_outside_of_its_partition_is_named() -> None:
    jobs = [
        job(0, cpus=1, partition="small", observed_nodes=("v1",)),
        job(1, cpus=1, partition="small", observed_nodes=("c1",)),
        job(2, cpus=1, partition="small", observed_nodes=("v1",), request=Request(partitions=("small", "main"))),
    ]
    assert "ran on nodes that their partition lacks here: small: v1 (1 job: j0)" in said(jobs)


def test_a_gang_whose_nodes_must_be_alike_is_compared_with_the_alike_nodes() -> None:
    large = Cluster(tuple(Node(f"n{at}", None, 0, 8, 32, ("left" if at < 2 else "right",)) for at in range(5)))

    def reason(instances: int) -> str:
        gang = job(0, cpus=8, instances=instances, gang=True, request=Request("[left|right]"))
        return " ".join(audit([gang], large, QueueTree()).sentences())

    assert reason(3) == ""
    assert "4 instances at once that satisfy the same part of the constraint, more than fit on the nodes" in reason(4)


def test_the_nodes_of_another_cluster_contradict_nothing() -> None:
    jobs = [job(0, cpus=1, observed_nodes=("a1",)), job(1, cpus=1, observed_nodes=("a2",))]
    assert audit(jobs, queues=None).contradictions == {}
    (text,) = audit(jobs).sentences()
    assert "none of the log's 2 nodes is known here: a1, a2" in text


def test_partitions_accounts_and_qos_are_compared_both_ways() -> None:
    jobs = [job(at, cpus=1, partition="old", account="physics", qos="") for at in range(2)]
    jobs += [job(at, cpus=1, partition="main", account="chem", qos="normal") for at in range(2, 4)]
    both = audit(jobs)
    text = " ".join(both.sentences())
    assert (
        "2 of 4 jobs (50%, 50% of the core-hours) ran in partitions that the site lacks: old (2 jobs: j0, j1)" in text
    )
    assert "belong to accounts that the site lacks: chem (2 jobs: j2, j3)" in text
    (rest,) = both.sentences(urgent=False)
    assert rest == "in the site, but not in the log: 1 partitions (small), 1 accounts (biology), 1 QOS (urgent)"


def test_an_audit_is_read_back_as_it_was_written() -> None:
    whole = audit([job(0, gpus=9), job(1, cpus=1, partition="old", observed_nodes=("x", "v1"))])
    again = Audit.of_dict(json.loads(json.dumps(whole.to_dict())))
    assert again.to_dict() == whole.to_dict()
    assert again.sentences() == whole.sentences()


REQUESTS = (None, Request("fast"), Request("large"), Request("fast&large"), Request("none"))


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_what_is_named_is_what_the_simulation_rejects(seed: int) -> None:
    rng = Random(seed)

    def random_job(number: int) -> Job:
        return job(
            number,
            gpus=rng.choice([0, 0.5, 1, 2, 4, 5]),
            cpus=rng.choice([0, 1, 16, 17, 33, 65]),
            memory_gb=rng.choice([0.0, 60.0, 200.0, 513.0]),
            gpu_types=rng.choice([None, None, ("T4",), ("V100-16", "T4"), ("H100",)]),
            instances=rng.choice([1, 2, 3, 5]),
            gang=rng.random() < 0.5,
            partition=rng.choice(["main", "small", "other"]),
            request=rng.choice(REQUESTS),
        )

    jobs = [random_job(number) for number in range(12)]
    scenario = ClusterScenario(Cluster(NODES), jobs, queues=QUEUES)
    kernel = scenario.kernel(0)
    Conversation(kernel).follow(scenario.policies.create("fifo-fit"))
    rejected = {row.job for row in kernel.schedule.log if row.kind.name == "REJECTED"}
    found = audit(jobs).contradictions.get("impossible")
    assert (0 if found is None else found.count) == len(rejected)


def run(*options: str, code: int = 0) -> str:
    ended = invoke(*options)
    assert ended.exit_code == code, ended.output
    return " ".join(ended.output.split())


@pytest.fixture
def wide(tmp_path: Path) -> list[str]:
    """The options of a table whose second job ran on several nodes, of which the table says nothing."""
    (tmp_path / "log.csv").write_text(
        "id,arrival_s,start_s,end_s,gpus,cpus\nlow,0,5,900,0,20\nhigh,30,40,1900,0,70\nnext,60,70,700,0,30\n"
    )
    (tmp_path / "cluster.yaml").write_text("cluster:\n  groups:\n  - {name: c, count: 6, gpus: 0, cpus: 36}\n")
    return ["--trace", str(tmp_path / "log.csv"), "--cluster", str(tmp_path / "cluster.yaml")]


SAID = "warning: 1 of 3 jobs (33%, 78% of the core-hours) ran in the log but can never run here: 70 CPUs on one node"


@pytest.mark.parametrize("algo", ["easy", "recorded"])
def test_a_replay_begins_with_the_contradiction_and_counts_such_jobs_as_missed(
    tmp_path: Path, wide: list[str], algo: str
) -> None:
    output = run("replay", *wide, "--algo", algo, "--no-plots", "--out", str(tmp_path))
    assert output.startswith(SAID)
    assert "waits against the log: 1 of 3 jobs that started in the log never start here; of the others" in output
    data = json.loads(run("replay", *wide, "--algo", algo, "--no-plots", "--json", "--out", str(tmp_path)))
    assert next(iter(data)) == "audit"
    assert (data["audit"]["urgent"], data["runs"][0]["workload"]["observed"]["missed"]) == (True, 1)
    (folder, *_) = sorted(tmp_path.glob("*-replay-*"))
    run("report", str(folder), "-o", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert page.index("can never run here") < page.index(f"{algo} does not reproduce the log")


def test_a_strict_command_refuses_the_contradiction(tmp_path: Path, wide: list[str]) -> None:
    plan = ["plan", "--target", "wait_s.p95<9"]
    for command in (["replay", "--algo", "easy"], ["whatif", "--policy", "easy"], plan):
        output = run(*command, *wide, "--strict", "--out", str(tmp_path / "out"), code=2)
        assert f"error: {wide[1]}: {SAID.removeprefix('warning: ')}" in output
    assert not (tmp_path / "out").exists()
    output = run("eta", "--backtest", *wide[1:], "--algo", "easy", "--strict", code=2)
    assert SAID.removeprefix("warning: ") in output


RULES = QueueTree(
    tree=(QueueNode("physics", job_limits=JobCaps(gpus=2)), QueueNode("biology")),
    partitions=(
        NodePartition("main", max_time_s=7200.0, job_limits=JobCaps(nodes=2), qos="part"),
        NodePartition("own", accounts=("biology",), denied_qos=("low",)),
    ),
    qos=(
        Qos("normal", user_limits=Caps(cpus=60)),
        Qos("low", max_time_s=600.0),
        Qos("part", job_limits=JobCaps(cpus=48)),
    ),
)


def broken(**of: object) -> dict[str, tuple[int, tuple[str, ...]]]:
    """The reasons by which a job among many may never start."""
    limit = of.pop("limit", None)
    own = job(1, **{"account": "physics", "partition": "main", "qos": "normal", "user": "ada", **of})
    if limit is not None:
        own = replace(own, graph=TaskGraph((replace(own.graph.tasks[0], estimate=limit),)))
    scenario = ClusterScenario(Cluster(NODES), (), queues=RULES)
    auditor = scenario.auditor()
    auditor.add(JobArrays.of([own, *[job(number, cpus=1, partition="main") for number in range(2, 9)]]))
    found = auditor.audit().contradictions
    return dict(found["rules"].reasons) if "rules" in found else {}


@pytest.mark.family("slurm")
@pytest.mark.parametrize(
    ("of", "reason"),
    [
        ({"cpus": 50.0}, "QOSMaxCpuPerJob (48) < 50: the QOS part"),
        (
            {"cpus": 62.0, "partition": "own", "account": "biology"},
            "QOSMaxCpuPerUser (60) < 62: the user ada in the QOS normal",
        ),
        (
            {"cpus": 1.0, "instances": 3, "gang": True, "request": Request(spread=True)},
            "PartitionNodeLimit (2) < 3: the partition main",
        ),
        ({"gpus": 4.0}, "AssocMaxGRESPerJob (2) < 4: the account physics"),
        ({"cpus": 1.0, "partition": "own"}, "AllowAccounts (biology) without physics: the partition own"),
        ({"cpus": 1.0, "partition": "own", "account": "biology", "qos": "low"}, "DenyQos (low): the partition own"),
        ({"cpus": 1.0, "limit": 9000.0}, "PartitionTimeLimit (7,200 s) < 9,000 s: the partition main"),
        ({"cpus": 1.0, "limit": 700.0, "qos": "low"}, "QOSMaxWallDurationPerJob (600 s) < 700 s: the QOS low"),
        ({"cpus": 1.0, "request": Request(partitions=("own", "main"))}, None),
        ({"cpus": 40.0, "limit": 7200.0, "gpus": 2.0}, None),
    ],
)
def test_a_job_that_the_rules_of_the_site_keep_out_is_named_with_the_rule(
    of: dict[str, object], reason: str | None
) -> None:
    assert broken(**of) == ({} if reason is None else {reason: (1, ("j1",))})


@pytest.mark.family("slurm")
def test_reasons_that_differ_only_in_the_amount_are_one_with_a_range() -> None:
    of: dict[str, Any] = {"account": "physics", "partition": "main", "qos": "< 5: x", "user": "ada"}
    queues = replace(RULES, qos=(*RULES.qos, Qos("< 5: x", job_limits=JobCaps(cpus=8))))
    auditor = ClusterScenario(Cluster(NODES), (), queues=queues).auditor()
    auditor.add(JobArrays.of([job(number, cpus=cpus, **of) for number, cpus in enumerate((44.0, 12.0, 30.0))]))
    reason = "QOSMaxCpuPerJob (8) < 12 to 44: the QOS < 5: x"
    assert auditor.audit().contradictions["rules"].reasons == {reason: (3, ("j0", "j1", "j2"))}


def test_several_reasons_in_one_keep_the_only_amount() -> None:
    low, high = (
        as_one_reason(["a rule", Excess.of("the limit (1) < ", amount, " s: x"), "b"]) for amount in (2.5, 4000.0)
    )
    assert isinstance(low, Excess)
    assert isinstance(high, Excess)
    assert (low, low.to(low)) == ("a rule; the limit (1) < 2.5 s: x; b",) * 2
    assert low.to(high) == "a rule; the limit (1) < 2.5 to 4,000 s: x; b"
    assert not isinstance(as_one_reason([low, high]), Excess)


@pytest.mark.family("slurm")
def test_what_breaks_a_rule_for_single_jobs_never_starts_and_holds_nobody_up() -> None:
    jobs = [job(1, cpus=50.0, partition="main", work=10.0), job(2, cpus=8.0, partition="main", work=10.0)]
    scenario = ClusterScenario(Cluster(NODES), jobs, queues=RULES)
    kernel = scenario.kernel(0)
    Conversation(kernel).follow(POLICIES.create("slurm-multifactor"))
    ends = {row.job: row.kind.name for row in kernel.schedule.log if row.kind.name in ("REJECTED", "COMPLETED")}
    assert ends == {0: "REJECTED", 1: "COMPLETED"}


SITE = {
    "slurm.conf": """ClusterName=kite
SelectType=select/cons_tres
PriorityType=priority/multifactor
PriorityWeightFairshare=1000
AccountingStorageEnforce=limits,qos,associations
GresTypes=gpu
NodeName=n[1-2] CPUs=16 RealMemory=64000 Gres=gpu:a100:2
NodeName=c1 CPUs=16 RealMemory=64000
PartitionName=gpu Nodes=n[1-2] Default=YES MaxTime=1-00:00:00
PartitionName=cpu Nodes=c1 MaxTime=02:00:00
""",
    "assoc.txt": """Cluster|Account|User|Share|ParentName|MaxTRES|QOS
kite|root||1|||normal
kite|bio||10|root||normal
kite|bio|ana|1|||normal
kite|bio|ben|1||cpu=8|normal
""",
    "qos.txt": "Name|Priority|Flags|MaxWall\nnormal|0||1-00:00:00\n",
}
COLUMNS = (
    "JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|ReqTRES|"
    "AllocTRES|NodeList|SubmitLine"
)
ROW = {
    "User": "ana", "Account": "bio", "Partition": "gpu", "QOS": "normal", "State": "COMPLETED",
    "Submit": 0, "Eligible": 0, "Start": 60, "End": 660, "ElapsedRaw": 600, "TimelimitRaw": 60, "NNodes": 1,
    "NCPUS": 4, "ReqTRES": "cpu=4,mem=8G,node=1,gres/gpu:a100=1", "NodeList": "n1", "SubmitLine": "sbatch a.sh",
}  # fmt: skip
WRONG: dict[str, dict[str, object]] = {
    "impossible": {"ReqTRES": "cpu=4,mem=8G,node=1,gres/gpu:a100=8"},
    "rules": {"User": "ben", "NCPUS": 16, "ReqTRES": "cpu=16,mem=8G,node=1,gres/gpu:a100=1"},
    "partitions": {"Partition": "big"},
    "accounts": {"Account": "zoo"},
    "users": {"User": "nemo"},
    "qos": {"QOS": "urgent"},
    "nodes": {"NodeList": "x9"},
    "gpu types": {"ReqTRES": "cpu=4,mem=8G,node=1,gres/gpu:h100=1"},
    "columns": {"NCPUS": 8},
    "times": {"Start": -7200, "End": -6600},
    "ids": {"JobID": "900"},
    "text": {"ReqTRES": "cpu=4,mem=8G,node=1", "SubmitLine": "sbatch --gres=gpu:1 a.sh"},
}
"""Columns of a row for each kind of contradiction."""


@pytest.fixture
def kite(tmp_path: Path) -> Path:
    """A Slurm site whose log has every kind of contradiction in one of 25 jobs."""
    folder = tmp_path / "kite"
    folder.mkdir()
    for name, text in SITE.items():
        (folder / name).write_text(text)
    rows = [ROW | wrong for _ in range(4) for wrong in ({}, *WRONG.values())]
    lines = [COLUMNS]
    for number, row in enumerate(rows):
        arrival_s = 1_772_438_400 + 4000 * number
        values = {"JobID": str(900 + number), "AllocTRES": row["ReqTRES"]} | row
        values |= {name: arrival_s + int(str(row[name])) for name in ("Submit", "Eligible", "Start", "End")}
        lines.append("|".join(str(values[name]) for name in COLUMNS.split("|")))
    (folder / "sacct.txt").write_text("\n".join(lines) + "\n")
    return folder


def site_commands(kite: Path, tmp_path: Path) -> dict[str, list[str]]:
    """Commands that read a log, with one that reads the log of the site."""
    log, config = str(kite / "sacct.txt"), str(tmp_path / "kite.yaml")
    run("site", "import", str(kite), "--out", config)
    trace = {"kind": "trace", "path": log, "format": "sacct"}
    written = tmp_path / "trace.yaml"
    written.write_text(Path(config).read_text() + f"workload: {json.dumps(trace)}\n")
    grid = tmp_path / "grid.yaml"
    grid.write_text(json.dumps({"base": str(written), "over": {"policy": ["fifo", "easy"]}}))
    site, out = ["--config", config, "--trace", log], ["--out", str(tmp_path / "out")]
    return {
        "site import": ["site", "import", str(kite), "--out", str(tmp_path / "again.yaml")],
        "trace info": ["trace", "info", log, "--no-plots"],
        "trace convert": ["trace", "convert", log, str(tmp_path / "converted.jsonl")],
        "replay": ["replay", *site, "--policy", "slurm-multifactor", *out],
        "eval": ["eval", "--config", str(written), "--policy", "easy", *out],
        "baseline": ["baseline", "--config", str(written), "--policy", "fifo", "--policy", "easy", *out],
        "sweep": ["sweep", str(grid), *out],
        "whatif": ["whatif", *site, "--policy", "fifo", "--policy", "easy", *out],
        "plan": ["plan", *site, "--policy", "easy", "--target", "wait_s.p95<600", *out],
        "calibrate": ["calibrate", *site, "--out", str(tmp_path / "fitted.yaml")],
    }


OF_READERS = ("columns", "times", "ids", "text")


@pytest.mark.family("slurm", "capacity")
def test_every_command_that_reads_a_log_begins_with_all_contradictions(kite: Path, tmp_path: Path) -> None:
    for name, command in site_commands(kite, tmp_path).items():
        kinds = OF_READERS if name.startswith("trace") else [*WRONG, "smaller nodes"]
        expected = [text for kind, text in CONTRADICTIONS.items() if kind in kinds]
        lines = run(*command).splitlines()
        assert all(line.startswith("warning: ") for line in lines[: len(expected)]), name
        for text, line in zip(expected, lines, strict=False):
            assert text in line, (name, text)


@pytest.mark.family("slurm", "capacity")
def test_every_command_that_reads_a_log_has_the_contradictions_in_json_and_refuses_if_strict(
    kite: Path, tmp_path: Path
) -> None:
    for name, command in site_commands(kite, tmp_path).items():
        if name == "site import":
            (tmp_path / "again.yaml").write_text("mine")
        error = run(*command, "--strict", code=2)
        if name == "site import":  # a refusal leaves what was there
            assert (tmp_path / "again.yaml").read_text() == "mine"
            (tmp_path / "again.yaml").unlink()
        assert CONTRADICTIONS["times" if name.startswith("trace") else "impossible"] in error, name
        assert not (tmp_path / "again.yaml").exists()
        assert not (tmp_path / "converted.jsonl").exists()
        if name not in ("site import", "trace convert"):
            found = json.loads(run(*command, "--json"))["audit"]
            assert {"times", "columns", "ids", "text"} <= {of["kind"] for of in found["contradictions"]}, name


@pytest.mark.family("slurm")
def test_why_names_the_rule_because_of_which_a_job_was_rejected(kite: Path, tmp_path: Path) -> None:
    run(*site_commands(kite, tmp_path)["replay"])
    (folder,) = (tmp_path / "out").glob("*-replay-*")
    ben = 900 + 1 + list(WRONG).index("rules")
    text = run("why", str(folder), str(ben))
    assert text.startswith("warning: ")
    assert "was rejected on arrival" in text
    assert "never: AssocMaxCpuPerJob (8) < 16" in text
    facts = json.loads(run("why", str(folder), "901", "--json"))
    assert facts["never"].endswith("has no room for 8 GPUs (A100-40), 4 CPUs, 8 GB")
    assert facts["audit"]["urgent"]
