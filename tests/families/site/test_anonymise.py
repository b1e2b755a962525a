"""Logs and nodes without names: nothing of them is left, and the jobs are the same."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from support.command_line import fine, invoke

from dagsim.config.schema import load_config
from dagsim.errors import TraceError
from dagsim.families.site.anonymise import Names, anonymise, renamed_site
from dagsim.families.site.node_lists import FoundNode, SiteFacts, grouped, read_nodes
from dagsim.model import Caps, Job, QueueTree, Request
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.traces import open_trace
from dagsim.traces.source import Source

SAMPLES = Path(__file__).parents[3] / "workloads" / "samples"


SUBMITTED = ("user", "account", "partition", "qos")


def nameless(jobs: list[Job]) -> list[Job]:
    unnamed = dict.fromkeys(("id", "tenant", *SUBMITTED), "")
    requests = [None if job.request is None else replace(job.request, partitions=()) or None for job in jobs]
    times = [tuple([run._replace(nodes=()) for run in job.observed_attempts]) for job in jobs]
    return [
        replace(job, observed_nodes=(), observed_attempts=attempts, request=request, **unnamed)
        for job, attempts, request in zip(jobs, times, requests, strict=True)
    ]


@pytest.mark.family("slurm")
@pytest.mark.parametrize("file", ["sacct/jobs.txt", "sacct/jobs.json"])
def test_a_log_of_slurm_gives_the_same_jobs(tmp_path: Path, file: str) -> None:
    (copy,) = anonymise([SAMPLES / file], tmp_path)
    before, after = (list(open_trace(path).jobs()) for path in (SAMPLES / file, copy))
    assert nameless(after) == nameless(before)
    assert [job.id for job in after] == [job.id for job in before]
    for kind in ("tenant", *SUBMITTED):
        assert len({getattr(job, kind) for job in after}) == len({getattr(job, kind) for job in before})
    assert not {getattr(job, kind) for job in after for kind in SUBMITTED} & {
        getattr(job, kind) for job in before for kind in SUBMITTED if getattr(job, kind)
    }


@pytest.mark.family("slurm")
def test_no_name_is_left(tmp_path: Path) -> None:
    (copy,) = anonymise([SAMPLES / "sacct" / "jobs.txt"], tmp_path)
    words = set(re.findall(r"[A-Za-z][A-Za-z0-9]*", copy.read_text()))
    assert not words & {"ines", "jon", "kai", "lea", "mia", "optics", "genes", "n01", "n03", "h", "c01", "high", "low"}
    assert "4242" not in copy.read_text()  # CANCELLED by a user id


@pytest.mark.family("slurm")
def test_the_same_name_is_the_same_in_all_files(tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text(
        "NodeName=n03 CPUTot=8 RealMemory=1024 Gres=gpu:t4:4 State=IDLE Partitions=gpu\n"
    )
    log, nodes = anonymise([SAMPLES / "sacct" / "jobs.txt", tmp_path / "nodes.txt"], tmp_path / "out")
    (node,) = read_nodes(Source(nodes))
    job = next(job for job in open_trace(log).jobs() if job.id == "501_1")
    assert job.observed_nodes == (node.name,)
    assert node.gpus == (("t4", 4),)


@pytest.mark.family("slurm")
def test_nodes_keep_what_they_have(tmp_path: Path) -> None:
    (copy,) = anonymise([SAMPLES / "nodes" / "scontrol.txt"], tmp_path)
    before, after = (read_nodes(Source(path)) for path in (SAMPLES / "nodes" / "scontrol.txt", copy))
    assert [(node.gpus, node.cpus, node.usable) for node in after] == [
        (node.gpus, node.cpus, node.usable) for node in before
    ]
    assert not {node.name for node in before} & {node.name for node in after}
    assert "Xid" not in copy.read_text()


@pytest.mark.parametrize(
    "file",
    [
        pytest.param("pbs/20260105", marks=pytest.mark.family("pbs")),
        pytest.param("kubernetes/pods.json", marks=pytest.mark.family("kubernetes")),
    ],
)
def test_other_logs_become_json_lines_of_the_same_jobs(tmp_path: Path, file: str) -> None:
    (copy,) = anonymise([SAMPLES / file], tmp_path)
    before, after = (list(open_trace(path).jobs()) for path in (SAMPLES / file, copy))
    assert [(job.arrival_s, job.observed_start_s, [task.demand for task in job.tasks]) for job in after] == [
        (job.arrival_s, job.observed_start_s, [task.demand for task in job.tasks]) for job in before
    ]
    text = gzip.decompress(copy.read_bytes()).decode()
    assert not set(re.findall(r"\w+", text)) & {"noor", "omar", "pia", "optics", "genes", "q1", "q2", "fit", "lone"}


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(TraceError, match="not recognised"):
        anonymise([tmp_path / "x"], tmp_path / "out")


@pytest.mark.family("slurm")
def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    arguments = ["trace", "anonymise", str(SAMPLES / "sacct" / "jobs.txt"), "--to", str(tmp_path)]
    result = fine(*arguments)
    assert re.search(r"\d+ names replaced", result.output)


@pytest.mark.family("slurm")
@pytest.mark.data
def test_real_runs_are_the_same_without_names(tmp_path: Path, data: Path) -> None:
    for run in ("states-24.11", "preempt-24.11", "multifactor-classic-22.05"):
        path = data / "golden" / "slurm" / run / "sacct-aDX.txt"
        (copy,) = anonymise([path], tmp_path / run)
        assert nameless(list(open_trace(copy).jobs())) == nameless(list(open_trace(path).jobs()))


def site_folder(tmp_path: Path) -> Path:
    """A site of Slurm with a log whose jobs have constraints, licences, a reservation and nice."""
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "slurm.conf").write_text(
        "ClusterName=hydra\nSelectTypeParameters=CR_Core_Memory\nLicenses=abaqus:3\n"
        "NodeName=zeus[1-2] CPUs=8 RealMemory=65536 Feature=fastnet\n"
        "NodeName=hera1 CPUs=8 RealMemory=65536 Gres=gpu:a100:2 Feature=slownet,a100\n"
        "PartitionName=heroes Nodes=zeus[1-2],hera1 Default=YES\n"
        "PartitionName=gods Nodes=hera1 AllowAccounts=spartans\n"
        "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
    )
    (folder / "topology.conf").write_text("SwitchName=olymp Nodes=zeus[1-2],hera1\n")
    (folder / "dump").write_text(
        "Cluster - 'hydra':Fairshare=1\nParent - 'root'\nAccount - 'spartans':Fairshare=3\n"
        "Parent - 'spartans'\nUser - 'helen':Fairshare=2\n"
    )
    (folder / "events").write_text(
        "NodeName|TimeStart|TimeEnd|State|Reason|User\nzeus2|1500|1600|DRAIN|paris broke it|helen(1)\n"
    )
    (folder / "res").write_text(
        "ReservationName=troja StartTime=1100 EndTime=9000 Duration=x\n   Nodes=hera1 Flags=SPEC\n"
    )
    head = "JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|"
    head += "NCPUS|ReqTRES|AllocTRES|NodeList|Constraints|Reservation|SubmitLine\n"
    lines = [
        ("heroes", "zeus1", "fastnet|a100", "", "sbatch -C fastnet|a100 -L abaqus:2 --nice=7 -N1 /home/helen/x.sh"),
        ("heroes", "zeus2", "", "", "sbatch -p heroes,gods -n 3 --array=0-9%4 x.sh"),
        ("gods", "hera1", "", "troja", "srun --reservation=troja --exclusive -N1 x"),
    ]
    rows = [
        f"{n}|{n}|helen|spartans|{part}|normal|COMPLETED|{1000 + n}|{1000 + n}|{1001 + n}|{1100 + n}|99|5|1|4|"
        f"cpu=4,node=1|cpu=4,node=1|{node}|{constraint}|{reservation}|{line}"
        for n, (part, node, constraint, reservation, line) in enumerate(lines, 1)
    ]
    (folder / "sacct.txt").write_text(head + "\n".join(rows) + "\n")
    return folder


def waits(log: Path, config: Path, out: Path) -> dict[str, Any]:
    words = ["replay", "--trace", str(log), "--config", str(config), "--policy", "slurm-multifactor", "--json"]
    result = fine(*words, "--out", out)
    metrics: dict[str, Any] = json.loads(result.output)["runs"][0]["metrics"]
    return {name: value for name, value in metrics.items() if name.startswith(("wait_s", "jct_s", "makespan_s"))}


@pytest.mark.family("fabric", "slurm")
def test_a_folder_of_a_site_becomes_a_log_and_a_configuration_that_replay_alike(tmp_path: Path) -> None:
    folder = site_folder(tmp_path)
    fine("trace", "anonymise", folder, "--to", tmp_path / "out")
    log, config = tmp_path / "out" / "sacct-1.txt", tmp_path / "out" / "site.yaml"
    text = log.read_text() + config.read_text()
    secrets = ("hydra", "abaqus", "zeus", "hera", "heroes", "gods", "olymp", "spartans", "helen", "troja", "paris")
    assert [word for word in (*secrets, "fastnet", "slownet", "x.sh") if word in text] == []
    assert "a100" in text  # names of GPU types stay
    invoke("site", "import", folder, "-o", tmp_path / "own.yaml")
    before = waits(folder / "sacct.txt", tmp_path / "own.yaml", tmp_path / "a")
    assert before["wait_s.mean"] > 0
    assert waits(log, config, tmp_path / "b") == before
    configs = [load_config(path) for path in (tmp_path / "own.yaml", config)]
    assert configs[0].preemption == configs[1].preemption != Preemption()
    own, renamed = (one.queues for one in configs)
    assert own is not None
    assert renamed is not None
    assert [len(getattr(renamed, name)) for name in ("tree", "partitions", "reservations", "outages", "licences")] == [
        len(getattr(own, name)) for name in ("tree", "partitions", "reservations", "outages", "licences")
    ]


_RESOURCES = {"gpus_of", "quota", "borrow", "lend", "minutes", "billing", "scheduler"}
"""Fields whose keys are resources and parameters, which keep their names."""


def named(part: Any, hint: Any = None) -> Any:
    """Return a part of a site in which every text is a name of the site."""
    hint = hint or part
    if hint is str:
        return "acme"
    if get_origin(hint) is tuple:
        return (named(get_args(hint)[0]),)
    if get_origin(hint) is Mapping:
        return {"acme": named(get_args(hint)[1])}
    if not is_dataclass(hint):
        return {float: 1.0, Caps: Caps()}[hint]
    hints = get_type_hints(hint, include_extras=False)
    values = {
        field.name: named(hints[field.name])
        for field in fields(hint)
        if (hints[field.name] is str or get_origin(hints[field.name]) in (tuple, Mapping))
        and field.name not in _RESOURCES | {"children"}
    }
    required = {"start_s": 0.0, "end_s": 10.0}
    build: Any = hint
    return build(**{name: required[name] for name in required if name in hints} | values)


NODE = FoundNode("n01", (), 4.0, 8.0, "IDLE", True)


def test_no_name_of_a_site_is_left_in_its_queues() -> None:
    queues = named(QueueTree)
    facts = SiteFacts(grouped([NODE]), queues, None, False, ("acme",))
    site = SimpleNamespace(found_nodes=lambda: [NODE], facts=lambda: facts)
    renamed = renamed_site(site, Names())  # type: ignore[arg-type]
    assert str(queues).count("acme") > 20
    assert "acme" not in str(renamed)
    partition, reservation = renamed.queues.partitions[0], renamed.queues.reservations[0]
    assert partition.accounts == reservation.accounts == (renamed.queues.tree[0].name,)


@pytest.mark.family("kubernetes")
def test_no_node_of_a_site_is_left_in_the_objects_of_kueue() -> None:
    from dagsim.families.kubernetes.kueue.kueue_objects import KueueObjects, ResourceFlavor, TopologyNode

    objects = KueueObjects(
        resource_flavors=(ResourceFlavor("acme", {"acme": "acme"}),),
        nodes=(TopologyNode("acme-1", {"site": "acme"}, {"cpu": 8.0}),),
    )
    assert "acme" not in str(objects.renamed(Names().new))


@pytest.mark.family("slurm")
def test_the_columns_of_old_logs_stay_and_other_resources_lose_their_names(tmp_path: Path) -> None:
    head = "JobID|User|Cluster|State|Submit|Start|Elapsed|Timelimit|NNodes|ReqNodes|ReqCPUS|NCPUS|ReqMem|ReqTRES|"
    head += "AllocTRES|ReqGRES|AllocGRES|Restarts|Reason|Comment|SubmitLine"
    lines = [
        "1|ada|acme|COMPLETED|1772440001|1772440009|00:10:00|01:00:00|2|2|8|8|4Gn|cpu=8,gres/acme=1,license/acme=2,node=2|"
        "cpu=8,node=2|PER_NODE:gpu:tesla:2,acme:1||0|ReqNodeNotAvail, UnavailableNodes:acme[1-3]|acme|",
        "2|ada|acme2|COMPLETED|1772440002|1772440010|00:20:00|01:00:00|1|1|4|4|4Gn|cpu=4,node=1|cpu=4,node=1||acme:1|0|"
        "|acme|sbatch --begin=now+acme a.sh",
        "3|ada|acme2|COMPLETED|1772440003|1772450010|00:20:00|01:00:00|1|1|4|4|4Gn|cpu=4,node=1|cpu=4,node=1|gpu:1||0|"
        "|acme|sbatch --begin=now+2hours a.sh",
    ]
    (tmp_path / "log.txt").write_text("\n".join([head, *lines]) + "\n")
    (copy,) = anonymise([tmp_path / "log.txt"], tmp_path / "out")
    before, after = (list(open_trace(path).jobs()) for path in (tmp_path / "log.txt", copy))
    assert "acme" not in copy.read_text()
    assert "UnavailableNodes" not in copy.read_text()
    assert [job.tasks[0].gpus for job in after] == [2, 0, 1]
    assert before[0].request == Request(licences=(("acme", 2),))
    assert after[0].request == Request(licences=(("licence-1", 2),))
    assert [replace(job, request=None) for job in nameless(after)] == [
        replace(job, request=None) for job in nameless(before)
    ]


@pytest.mark.family("slurm")
def test_the_terms_of_submissions_keep_their_shape_under_new_names(tmp_path: Path) -> None:
    (copy,) = anonymise([site_folder(tmp_path) / "sacct.txt"], tmp_path / "out")
    requests = [job.request for job in open_trace(copy).jobs()]
    assert requests == [
        Request("feature-1|a100", licences=(("licence-1", 2),), spread=True),
        Request(partitions=("partition-1", "partition-2"), spread=False, array="2", array_limit=4),
        Request(reservation="reservation-1", exclusive=True, spread=True),
    ]
    assert [job.priority for job in open_trace(copy).jobs()] == [-7, 0, 0]


def test_a_folder_without_a_log_or_site_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").write_text("hello\n")
    with pytest.raises(TraceError, match="no file to anonymise; name at least one log"):
        anonymise([tmp_path / "in"], tmp_path / "out")


@pytest.mark.family("slurm")
def test_dependencies_and_singletons_stay_in_the_lines_of_submissions(tmp_path: Path) -> None:
    head = "JobIDRaw|User|State|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|AllocTRES|SubmitLine"
    lines = ["sbatch -J secret a.sh", "sbatch -d afterok:1 b.sh", "sbatch -d singleton -J secret a.sh"]
    times = "1772440009|1772440019|10"
    rows = [f"{at}|ada|COMPLETED|177244000{at}|{times}|1|1|cpu=1,node=1|{line}" for at, line in enumerate(lines, 1)]
    (tmp_path / "log.txt").write_text("\n".join([head, *rows]) + "\n")
    fine("trace", "anonymise", tmp_path / "log.txt", "--to", tmp_path / "new")
    (out,) = (tmp_path / "new").iterdir()
    assert "secret" not in (gzip.decompress(out.read_bytes()).decode() if out.suffix == ".gz" else out.read_text())
    after = [job.request.after if job.request else () for job in open_trace(out).jobs()]
    assert after == [(), ("1",), ("1",)]
