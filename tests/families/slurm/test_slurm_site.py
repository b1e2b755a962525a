"""The import of a Slurm site from its files."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.command_line import fine, invoke

from dagsim.config.schema import load_config
from dagsim.errors import TraceError
from dagsim.families.fabric.topologies import Tree, TreeSwitch
from dagsim.families.site.cluster_file import import_site
from dagsim.families.site.node_lists import FoundNode, grouped
from dagsim.families.site.site_import import site_files
from dagsim.families.slurm.accounting.submission import begin_after_s, submission
from dagsim.families.slurm.site.site_file_kinds import SITE_FILE_KINDS
from dagsim.families.slurm.site.slurm_site_files import SITE_FILE_READERS, read_slurm_site
from dagsim.families.slurm.site.slurm_site_values import gres_gpus
from dagsim.model import Caps, NodeOutage, Request
from dagsim.traces import open_trace
from dagsim.traces.times import moment_s

CONF = """ClusterName=tide
SelectTypeParameters=CR_Core_Memory
AccountingStorageEnforce=associations,limits
PriorityWeightAge=500   # a comment
PriorityWeightFairshare=2000
PriorityDecayHalfLife=1-12
PriorityMaxAge=0-08:00:00
PriorityFlags=ACCRUE_ALWAYS,DEPTH_OBLIVIOUS
SchedulerParameters=bf_interval=45,bf_window=600,bf_window_linear=90,bf_max_job_user=7,default_queue_depth=50,bf_strange=1
Licenses=solver:3
include nodes.conf
PartitionName=DEFAULT MaxTime=1-0 State=UP
PartitionName=side Nodes=n[1-2] PriorityTier=3 QOS=side
PartitionName=main Nodes=ALL Default=YES DefaultTime=30 TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu=8"
"""
NODES = """NodeName=DEFAULT Sockets=2 CoresPerSocket=4 RealMemory=65536
NodeName=n[1-2] Feature=old Weight=5
NodeName=g1 Gres=gpu:a100:2 Feature=new,nvl Weight=9
"""
DUMP = """Cluster - 'tide':Fairshare=1:QOS='normal'
Parent - 'root'
Account - 'lab':Description='lab':Organization='lab':Fairshare=30:GrpTRES=cpu=12,gres/gpu:a100=1
Parent - 'lab'
Account - 'sub':Fairshare=7
Parent - 'sub'
User - 'ada':DefaultAccount='sub':Fairshare=3:MaxJobs=2
"""
QOS = """Name|Priority|Preempt|PreemptMode|Flags|UsageFactor|GrpTRES|MaxWall|MaxTRESPU|MaxJobsPU
normal|10||cluster||1.0||||
side|0||cluster||1.0||00:30:00|cpu=4|1
"""
RESERVATION = """ReservationName=maint StartTime=2026-03-02T12:00:00 EndTime=2026-03-02T14:00:00 Duration=02:00:00
   Nodes=n1 NodeCnt=1 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   Users=root Accounts=(null) Licenses=(null) State=INACTIVE
"""
HEADER = (
    "JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|"
)
HEADER += "ReqTRES|AllocTRES|NodeList\n"


def row(id: int, submit: int, start: int, end: int, cpus: int = 1) -> str:
    tres = f"cpu={cpus},mem=1000M,node=1"
    times = f"{submit}|{submit}|{start}|{end}|{end - start}|10"
    return f"{id}|{id}|ada|sub|main|normal|COMPLETED|{times}|1|{cpus}|{tres}|{tres}|n1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    files = {"slurm.conf": CONF, "nodes.conf": NODES, "dump": DUMP, "qos.txt": QOS, "reservations": RESERVATION}
    log = HEADER + row(1, 1772440000, 1772440000, 1772440300) + row(2, 1772440010, 1772440300, 1772440400)
    further = "JobIDRaw|Constraints|SubmitLine\n2|old|new|sbatch -C old|new -L solver:2 --nice=5 -n 1 -N1 x.sh\n"
    for name, text in (files | {"sacct.txt": log, "sacct-more.txt": further}).items():
        (folder / name).write_text(text)
    return folder


def test_each_file_is_read_by_its_content(folder: Path) -> None:
    site = read_slurm_site(site_files([folder]))
    queues = site.queues()
    assert [(node.name, node.cpus, node.features, node.weight) for node in site.found_nodes()] == [
        ("n1", 8, ("old",), 5),
        ("n2", 8, ("old",), 5),
        ("g1", 8, ("new", "nvl"), 9),
    ]
    main, side = queues.partitions
    assert (main.name, main.nodes, main.default_time_s, main.max_time_s) == ("main", (), 1800, 86400)
    assert main.billing == {"cpus": 1, "memory_gb": 0.25, "gpus": 8}
    assert (side.tier, side.nodes, side.qos) == (3, ("n1", "n2"), "side")
    (lab,) = queues.tree
    assert (lab.weight, lab.limits.cpus, lab.limits.gpus_of) == (30, 12, {"A100-40": 1})
    assert lab.children[0].users == {"ada": 3}
    assert lab.children[0].limits_of == {"ada": Caps(jobs=2)}
    assert queues.qos[1].user_limits == Caps(cpus=4, jobs=1)
    assert queues.qos[1].max_time_s == 1800
    assert queues.licences == {"solver": 3}
    assert (queues.reservations[0].start_s, queues.reservations[0].end_s) == (1772452800, 1772460000)
    settings = queues.scheduler
    assert (settings["age"], settings["half_life_s"], settings["max_age_s"]) == (500, 129600, 28800)
    assert (settings["bf_interval_s"], settings["bf_window_s"], settings["bf_max_job_user"]) == (45, 36000, 7)
    assert settings["bf_window_linear_s"] == 90
    assert settings["accrue_always"]
    assert set(site.unmodelled) == {"PriorityFlags=DEPTH_OBLIVIOUS", "SchedulerParameters=bf_strange=1"}


def test_each_kind_of_file_has_a_reader() -> None:
    assert {kind for kind, _ in SITE_FILE_KINDS} - {""} == {*SITE_FILE_READERS}


def test_the_import_is_a_configuration_whose_scheduler_replay_uses(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "site.yaml"
    result = fine("site", "import", folder, "-o", out)
    assert "not modelled: SchedulerParameters=bf_strange=1" in result.output
    assert load_config(out).queues is not None
    words = ["replay", "--trace", str(folder), "--config", str(out), "--policy", "slurm-multifactor", "--json"]
    replay = fine(*words, "--out", tmp_path / "runs")
    observed = json.loads(replay.output)["runs"][0]["workload"]["observed"]
    assert (observed["total"]["jobs"], observed["early"]) == (2, 0)
    assert set(observed["by_partition"]) == {"main"}


def test_a_folder_joins_the_files_of_sacct_and_repairs_bars(folder: Path) -> None:
    trace = open_trace(folder)
    jobs = list(trace.jobs())
    assert jobs[0].request is None
    assert jobs[1].request == Request("old|new", licences=(("solver", 2),), spread=True)
    assert jobs[1].priority == -5
    assert trace.report.noted["with columns shifted by a separator inside a text (repaired)"] == 1


def test_logs_of_a_folder_may_have_different_columns(folder: Path) -> None:
    (folder / "sacct-more.txt").unlink()
    later = (HEADER + row(3, 1772440020, 1772440300, 1772440400)).replace("|QOS|", "|").replace("|normal|", "|")
    (folder / "sacct-later.txt").write_text(later)
    jobs = [(job.id, job.qos) for job in open_trace(folder).jobs()]
    assert jobs == [("1", "normal"), ("2", "normal"), ("3", "")]


def test_sdiag_states_how_long_a_backfill_cycle_takes(folder: Path) -> None:
    assert "bf_cycle_s" not in read_slurm_site(site_files([folder])).queues().scheduler
    (folder / "sdiag.txt").write_text(
        f"{'*' * 55}\nsdiag output at Mon May 11 23:13:40 2026 (1778541220)\n{'*' * 55}\n\n"
        "Main schedule statistics (microseconds):\n\tMean cycle:   48777\n\n"
        "Backfilling stats\n\tTotal cycles: 1325\n\tLast cycle: 47446\n\tMean cycle: 470690\n\n"
        "Latency for 1000 calls to gettimeofday(): 1707 microseconds\n"
    )
    site = read_slurm_site(site_files([folder]))
    assert ("sdiag.txt", "sdiag") in site.read
    assert dict(site.queues().scheduler)["bf_cycle_s"] == 0.47069


def test_slurm_conf_alone_is_enough(folder: Path) -> None:
    site = read_slurm_site([folder / "slurm.conf"])
    assert len(site.found_nodes()) == 3
    assert site.queues().partitions[1].qos == ""  # no file describes the QOS


def test_what_contradicts_or_is_missing_is_named(folder: Path) -> None:
    (folder / "show-nodes").write_text("NodeName=x1 CPUTot=4 RealMemory=1024 State=IDLE\n")
    with pytest.raises(TraceError, match="the list of nodes belongs to another cluster: 'x1'"):
        read_slurm_site(site_files([folder])).queues()
    (folder / "nodes.conf").unlink()
    with pytest.raises(TraceError, match=r"includes nodes\.conf, which is not in the folder"):
        read_slurm_site(site_files([folder]))


@pytest.mark.parametrize(
    ("line", "request_", "nice", "tasks"),
    [
        (
            "sbatch -p a,b -N2 --exclusive x.sh -C no",
            Request(partitions=("a", "b"), exclusive=True, spread=True),
            0,
            None,
        ),
        ("sbatch -n 64 --nice x.sh", Request(spread=False), 100, 64),
        (
            "srun --reservation=course -a 0-9%3 hostname",
            Request(reservation="course", spread=True, array_limit=3),
            0,
            None,
        ),
        ("sbatch -N 8 --segment=4 x.sh", Request(spread=True, segment=4), 0, None),
        ("sbatch -n 64 --segment=4 x.sh", Request(spread=False), 0, 64),  # its instances are tasks, not nodes
        ("python3 x.py", None, 0, None),
        ("", None, 0, None),
    ],
)
def test_the_terms_of_a_submission_are_read_from_its_line(
    line: str, request_: Request | None, nice: float, tasks: int | None
) -> None:
    terms = submission(line, "", "", "a")
    assert (terms.request, terms.nice, terms.tasks) == (request_, nice, tasks)


EVENTS = """Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
tide||2026-03-01T00:00:00|Unknown||Cluster registered TRES|slurm(64030)
tide|n1|2026-03-02T12:00:00|2026-03-02T13:00:00|DOWN*|Not responding|slurm(64030)
tide|n2|2026-03-02T12:00:00|2026-03-02T13:00:00|DOWN|Not responding|slurm(64030)
tide|g1|1772460000|Unknown|IDLE+DRAIN|ecc errors|root(0)
tide|x9|1772460000|Unknown|DRAIN|gone|root(0)
tide|g1|1772450000|1772450100|PLANNED|?|root(0)
"""
TREE = "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=g1  # a rack\nSwitchName=top Switches=leaf[1-2]\n"


@pytest.mark.parametrize(
    ("words", "after", "singleton"),
    [
        ("-d afterok:7 x.sh", ("7",), False),
        ("--dependency=afterany:7:9_2,afternotok:12 x.sh", ("7", "9_2", "12"), False),
        ("-d after:7+10:8 x.sh", ("start:7+600", "start:8"), False),
        ("-d afterok:7?afterok:9 x.sh", ("7", "9"), False),
        ("-d afterok:7 --begin=now+60 x.sh", ("7",), False),
        ("-d aftercorr:7,afterok:9 x.sh", ("7_*", "9"), False),
        ("-d afterok:7,expand:9 x.sh", (), False),  # unknown: as the log says
        ("-d singleton -J night x.sh", (), True),
        ("-d afterok:7,singleton -J night x.sh", ("7",), True),
    ],
)
def test_dependencies_are_read_from_the_line_of_a_submission(
    words: str, after: tuple[str, ...], singleton: bool
) -> None:
    terms = submission(f"sbatch -N1 {words}", "", "", "a")
    assert terms.request is not None
    assert (terms.request.after, terms.singleton) == (after, singleton)
    assert terms.name == ("night" if singleton else "x.sh")


@pytest.mark.parametrize(
    ("begin", "after_s"),
    [
        ("now", 0.0),
        ("now+2hours", 7200.0),
        ("now+90", 90.0),
        ("1970-01-01T00:05:00", 200.0),
        ("1970-01-02", 86300.0),
        ("1970-01-01", 0.0),  # passed already
        ("teatime", None),
    ],
)
def test_a_begin_time_counts_from_the_submission(begin: str, after_s: float | None) -> None:
    assert begin_after_s(begin, 100.0, lambda text: moment_s(text, "begin", ZoneInfo("UTC"))) == after_s


def test_tasks_of_arrays_and_begin_times_become_conditions_of_their_jobs(tmp_path: Path) -> None:
    lines = [
        "sbatch -a 1-2 a.sh",
        "sbatch -d aftercorr:1 b.sh",
        "sbatch -b now+5 c.sh",
        "sbatch -b noon -d afterok:1 d.sh",
    ]
    rows = [row(at, 100 + at, 110 + at, 120 + at).rstrip() + f"|{line}\n" for at, line in enumerate(lines, 1)]
    rows[1] = rows[1].replace("2|2|", "9|2_2|", 1)
    (tmp_path / "log").write_text(HEADER.rstrip() + "|SubmitLine\n" + "".join(rows))
    asked = [job.request or Request() for job in open_trace(tmp_path / "log").jobs()]
    assert [(request.after, request.begin_s) for request in asked] == [
        ((), None), (("1_2",), None), ((), 5.0), ((), None),
    ]  # fmt: skip


def test_a_singleton_waits_for_the_earlier_jobs_of_its_user_with_its_name(tmp_path: Path) -> None:
    lines = ["sbatch -J night a.sh", "sbatch night", "sbatch -J other b.sh", "sbatch -d singleton -J night a.sh"]
    lines += ["sbatch -J night -d singleton a.sh", "sbatch -d singleton --wrap ls"]
    rows = [row(at, 100 + at, 110 + at, 120 + at).rstrip() + f"|{line}\n" for at, line in enumerate(lines, 1)]
    (tmp_path / "log").write_text(HEADER.rstrip() + "|SubmitLine\n" + "".join(rows))
    after = [job.request.after if job.request else () for job in open_trace(tmp_path / "log").jobs()]
    assert after == [(), (), (), ("1", "2"), ("4",), ()]


def test_events_of_nodes_are_outages_of_the_site(folder: Path) -> None:
    (folder / "events.txt").write_text(EVENTS)
    site = read_slurm_site(site_files([folder]), ZoneInfo("Europe/Berlin"))
    assert site.queues().outages == (
        NodeOutage(("n1", "n2"), 1772452800 - 3600, 1772456400 - 3600, "down"),
        NodeOutage(("g1",), 1772460000),
    )
    unmodelled = " ".join(site.unmodelled)
    assert "sacctmgr show event: 1 node that is not in the cluster, such as x9" in unmodelled
    assert "sacctmgr show event: state 'PLANNED'" in unmodelled
    (folder / "events.txt").write_text(EVENTS.replace("1772460000", "yesterday"))
    with pytest.raises(TraceError, match=r"events\.txt:5: an event with an invalid time in start"):
        read_slurm_site(site_files([folder]))


def test_switches_are_the_network_of_the_configuration(folder: Path, tmp_path: Path) -> None:
    (folder / "topology.conf").write_text(TREE)
    (folder / "events.txt").write_text(EVENTS)
    out = tmp_path / "site.yaml"
    result = fine("site", "import", folder, "-o", out)
    assert "not modelled: topology.conf: jobs are not placed by switches" in result.output
    network = load_config(out).network
    assert network.topology == Tree(
        (TreeSwitch("leaf1", ("n1", "n2")), TreeSwitch("leaf2", ("g1",)), TreeSwitch("top", (), ("leaf1", "leaf2")))
    )
    words = ["replay", "--trace", str(folder), "--config", str(out), "--policy", "easy", "--json"]
    fine(*words, "--out", tmp_path / "runs")


def test_blocks_are_switches_below_one_and_other_forests_are_named(folder: Path) -> None:
    (folder / "topology.conf").write_text("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=g1,z1\nBlockSizes=1,2\n")
    site = read_slurm_site(site_files([folder]))
    topology = site.network(["n1", "n2", "g1:a", "g1:b"])["topology"]
    assert topology["switches"] == [
        {"name": "b1", "nodes": ["n1", "n2"]}, {"name": "b2", "nodes": ["g1:a", "g1:b"]},
        {"name": "blocks2-1", "switches": ["b1", "b2"]},
    ]  # fmt: skip
    assert topology["levels_up"] == ["block", "block2"]
    assert "topology.conf: 1 node that is not in the cluster, such as z1" in site.unmodelled
    (folder / "topology.conf").write_text("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=g1\n")
    site = read_slurm_site(site_files([folder]))
    assert site.network(["n1", "n2", "g1"]) is None
    assert any("expected one switch above all others" in what for what in site.unmodelled)


def test_blocks_are_put_together_in_the_sizes_that_slurm_plans_with(folder: Path) -> None:
    names = [f"x{number}" for number in range(1, 11)]
    blocks = "".join(f"BlockName=b{block} Nodes=x[{2 * block - 1}-{2 * block}]\n" for block in range(1, 6))
    (folder / "topology.conf").write_text(blocks + "BlockSizes=2,4,7,8\n")
    site = read_slurm_site(site_files([folder]))
    network = site.network(names)
    assert network["topology"]["levels_up"] == ["block", "block2", "block4"]
    assert "topology.conf: BlockSizes 7: not a multiple of the previous sizes" in site.unmodelled
    switches = [TreeSwitch(row["name"], tuple(row.get("nodes", ())), tuple(row.get("switches", ())))
                for row in network["topology"]["switches"]]  # fmt: skip
    levels = Tree(tuple(switches), levels_up=("block", "block2", "block4")).levels(names)
    assert [len(set(level.domains)) for level in levels] == [5, 3, 2]
    (folder / "topology.conf").write_text(blocks + "BlockSizes=2,x\n")
    with pytest.raises(TraceError, match="BlockSizes must be a list of node counts, such as 4,16, got '2,x'"):
        read_slurm_site(site_files([folder]))


def test_a_node_of_two_gpu_types_stays_in_its_partition(folder: Path, tmp_path: Path) -> None:
    nodes = NODES.replace("gpu:a100:2", "gpu:a100:2,gpu:v100:2")
    (folder / "nodes.conf").write_text(nodes)
    (folder / "slurm.conf").write_text(CONF.replace("Nodes=n[1-2]", "Nodes=n1,g1"))
    (folder / "topology.conf").write_text(TREE)
    out = tmp_path / "site.yaml"
    fine("site", "import", folder, "-o", out)
    words = ["replay", "--trace", str(folder), "--config", str(out), "--json", "--out", str(tmp_path / "runs")]
    fine(*words)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu", [("", 1)]), ("gpu:2", [("", 2)]), ("gpu:a100", [("a100", 1)]), ("gpu:3g.20gb:2", [("3g.20gb", 2)]),
        ("gpu:a100:8(S:0,1),shard:a100:8,gpu:t4:2", [("a100", 8), ("t4", 2)]), ("gpu:a100:no_consume:4", [("a100", 4)]),
        ("gpu:a100:2,gpu:a100:3,gpu:t4:0", [("a100", 5)]), ("(null)", []), ("", []),
    ],
)  # fmt: skip
def test_files_and_listings_state_the_gpus_of_a_node_in_one_syntax(gres: str, gpus: list[tuple[str, int]]) -> None:
    assert list(gres_gpus(gres)) == gpus


_HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("nodes.conf", "Sockets=2", f"Sockets={_HUGE}", "node n1: a non-numeric value for sockets"),
        ("nodes.conf", "RealMemory=65536", "RealMemory=nan", "node n1: a non-numeric value for realmemory"),
        ("nodes.conf", "a100:2", f"a100:{_HUGE}", "node g1: a non-numeric value for number of GPUs"),
        ("nodes.conf", "a100:2", "a100:two", "node g1: a non-numeric value for number of GPUs"),
        ("nodes.conf", "Weight=9", "Weight=heavy", "node g1: a non-numeric value for weight"),
        (
            "slurm.conf",
            "PriorityTier=3",
            f"PriorityTier={_HUGE}",
            "partition side: a non-numeric value for prioritytier",
        ),
        ("slurm.conf", "MaxTime=1-0", "MaxTime=-5", "partition (main|side): without duration"),
        ("slurm.conf", "GRES/gpu=8", "GRES/gpu=x", "partition main: a non-numeric value for tresbillingweights"),
        ("slurm.conf", "bf_interval=45", f"bf_interval={_HUGE}", "slurm.conf: a non-numeric value for bf_interval"),
        (
            "slurm.conf",
            "default_queue_depth=50",
            "default_queue_depth=-1",
            "an invalid value for default_queue_depth",
        ),
        (
            "slurm.conf",
            "PriorityWeightAge=500",
            "PriorityWeightAge=x",
            "slurm.conf: a non-numeric value for priorityweightage",
        ),
        ("slurm.conf", "Licenses=solver:3", "Licenses=solver:x", "slurm.conf: a non-numeric value for licences"),
        ("dump.txt", "cpu=12", "cpu=twelve", "account lab: a non-numeric value for cpu"),
        ("dump.txt", "MaxJobs=2", f"MaxJobs={_HUGE}", "account sub: a non-numeric value for limit of jobs"),
        ("qos.txt", "normal|10", f"normal|{_HUGE}", "QOS normal: a non-numeric value for priority"),
        ("qos.txt", "cpu=4|1", "cpu=4|many", "QOS side: a non-numeric value for limit of jobs"),
    ],
)
def test_a_value_that_cannot_be_read_is_an_error_that_names_its_owner(
    tmp_path: Path, name: str, old: str, new: str, words: str
) -> None:
    texts = {"slurm.conf": CONF, "nodes.conf": NODES, "dump.txt": DUMP, "qos.txt": QOS}
    assert old in texts[name]
    for file, text in texts.items():
        (tmp_path / file).write_text(text.replace(old, new) if file == name else text)
    ended = invoke("site", "import", tmp_path, "-o", tmp_path / "out.yaml")
    assert ended.exit_code == 2, ended.exception
    assert re.search(words, ended.stderr), ended.stderr


def test_a_line_may_be_continued_a_hundred_thousand_times(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF.replace("include nodes.conf\n", NODES) + "Prolog=x\\\n" + "y\\\n" * 100_000 + "z # end\n")
    began = time.process_time()
    site = read_slurm_site([path])
    assert site.conf["prolog"] == "x" + 100_000 * "y" + "z"
    assert time.process_time() - began < 10  # joined piece by piece it took minutes


def test_keys_that_slurm_does_not_know_are_named_with_the_nearest(folder: Path) -> None:
    (folder / "slurm.conf").write_text(CONF + "PriorityWeigthQOS=100\nPartitionName=b Nodes=n1 MaxTim=5\n")
    site = read_slurm_site(site_files([folder]))
    text, partition = [what for what in site.unmodelled if "no such key" in what]
    assert "'PriorityWeigthQOS' in slurm.conf" in text
    assert "priorityweightqos" in text
    assert partition.startswith(
        "'maxtim' of PartitionName=b in slurm.conf: there is no such key; did you mean 'maxtime'"
    )


def test_accounts_that_only_one_dump_has_are_named(folder: Path) -> None:
    (folder / "assoc").write_text("Cluster|Account|User|Share|GrpTRES\ntide|lab||10|\ntide|new||7|\n")
    texts = [what for what in read_slurm_site(site_files([folder])).unmodelled if "but not in" in what]
    assert any("in assoc, but not in a dump: new;" in text for text in texts), texts
    assert any("in a dump or sshare, but not in assoc: " in text for text in texts), texts


def test_contradicting_shares_of_an_account_are_named(folder: Path) -> None:
    (folder / "assoc").write_text("Cluster|Account|User|Share|GrpTRES\ntide|lab||20|\ntide|sub||7|\n")
    site = read_slurm_site(site_files([folder]))
    assert site.queues().tree[0].weight == 30
    assert [what for what in site.unmodelled if what.startswith("account")] == [
        "account lab: fairshare is 20 in assoc, 30 in a dump or sshare, which is used; one of the files is older"
    ]


def test_a_feature_says_how_large_a_gpu_is_and_jobs_that_name_it_may_use_it(folder: Path, tmp_path: Path) -> None:
    (folder / "nodes.conf").write_text(NODES.replace("Feature=new,nvl", "Feature=80gb,ram512gb"))
    log = HEADER + row(1, 1772440000, 1772440000, 1772440300).replace("cpu=1,mem", "cpu=1,gres/gpu:a100=1,mem")
    (folder / "sacct.txt").write_text(log)
    (folder / "sacct-more.txt").unlink()
    out = tmp_path / "site.yaml"
    fine("site", "import", folder, "-o", out)
    config = load_config(out)
    assert config.build_cluster().gpus_by_type() == {"A100-80": 2}
    assert config.cluster.accept == {"A100-40": {"A100-80": None}}
    words = ["replay", "--trace", str(folder), "--config", str(out), "--policy", "easy", "--json"]
    replay = fine(*words, "--out", tmp_path / "runs")
    assert json.loads(replay.output)["runs"][0]["metrics"]["rejected_no_such_gpu"] == 0


def test_a_list_of_nodes_in_json_counts_in_a_folder(tmp_path: Path) -> None:
    nodes = [
        {"name": "n1", "cpus": 8, "real_memory": 65536, "gres": "gpu:a100:2", "features": ["old"], "state": ["IDLE"]},
        {"name": "n2", "cpus": 4, "real_memory": 65536, "gres": "", "features": [], "state": ["IDLE"]},
    ]
    (tmp_path / "nodes.json").write_text(json.dumps({"nodes": nodes}, indent=1))
    (tmp_path / "slurm.conf").write_text("ClusterName=tide\nNodeName=n[1-2]\nPartitionName=p Nodes=ALL Default=YES\n")
    site = read_slurm_site(site_files([tmp_path]))
    assert [(node.name, node.gpus, node.cpus) for node in site.found_nodes()] == [
        ("n1", (("a100", 2),), 8),
        ("n2", (), 4),
    ]


def test_files_that_are_not_text_are_passed_over_by_name(folder: Path, tmp_path: Path) -> None:
    (folder / "core.12").write_bytes(bytes(range(256)) * 9)
    (folder / "empty").write_text("")
    (folder / "notes").write_text("No reservations in the system\n")
    result = fine("site", "import", folder, "-o", tmp_path / "site.yaml")
    assert "read core.12: nothing (this is binary data instead of text" in result.output
    assert "read empty: nothing (the file is empty)" in result.output
    assert "read notes: nothing (not recognised, or cut off)" in result.output
    assert "read sacct" not in result.output
    assert len(list(open_trace(folder).jobs())) == 2


PARTITIONS = """PartitionName=main
   AllowGroups=ALL AllowAccounts=lab AllowQos=ALL DenyQos=low
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=00:30:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=60 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=n[1-2],g1
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=YES:4
   OverTimeLimit=NONE PreemptMode=GANG,SUSPEND
   State=DRAIN TotalCPUs=24 TotalNodes=3 SelectTypeParameters=NONE
   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=24,mem=192G,node=3
"""
CONFIG = """Configuration data as of 2026-03-02T10:00:00
AccountingStorageEnforce = associations,qos
ClusterName             = tide
CompleteWait            = 30 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/qos
PreemptExemptTime       = 00:05:00
SuspendTime             = INFINITE
"""
LOADED_QOS = """Name|Priority|GraceTime|Preempt|PreemptMode|Flags|UsageFactor|GrpTRESMins|MaxTRES|MaxTRESPU|MaxSubmitPU
normal|10|00:00:00||cluster||1.0||||
urgent|90|00:00:00|normal|cluster|DenyOnLimit|1.0|cpu=9000|cpu=4|gres/gpu=1|10
"""


def test_no_setting_is_passed_over_in_silence(folder: Path) -> None:
    """Listings as `scontrol` and `sacctmgr` print them, with settings that have no effect here."""
    (folder / "partitions").write_text(PARTITIONS)
    (folder / "config").write_text(CONFIG)
    (folder / "qos.txt").write_text(LOADED_QOS)
    (folder / "assoc").write_text(
        "Cluster|Account|User|Partition|Share|GrpTRES|MaxWall|QOS\n"
        "tide|lab|||30|||normal\ntide|sub|ada|main|3|||normal\ntide|sub|bo||3||02:00:00|normal\n"
    )
    (folder / "dump").write_text(DUMP.replace("Fairshare=1:QOS", "Fairshare=1:MaxTRESPerJob=node=50:QOS", 1))
    site = read_slurm_site(site_files([folder]))
    queues = site.queues()
    assert queues.partitions[0].preempt == "suspend"
    assert queues.partitions[0].accounts == ("lab",)
    assert queues.partitions[0].denied_qos == ("low",)
    assert [qos.preempt for qos in queues.qos] == ["requeue", "requeue"]
    assert (queues.scheduler["preempt"], queues.qos[1].preempts) == ("qos", ("normal",))
    assert not queues.tree[0].limits  # they are not enforced
    assert not queues.qos[1].user_limits
    assert not queues.qos[1].job_limits
    assert (queues.partitions[0].accounts, queues.partitions[0].denied_qos) == (("lab",), ("low",))
    assert queues.partitions[0].grace_s == 60
    listed = "\n".join(site.unmodelled)
    for what in (
        "AccountingStorageEnforce=associations,qos: slurmctld does not enforce the limits",
        "completewait=30 sec",
        "preemptexempttime=00:05:00",
        "partition main: oversubscribe=YES:4",
        "partition main: preemptmode=gang",
        "partition main: state=DRAIN",
        "partition side: qos=side, which no file describes",
        "account sub: an association of ada with the partition main",
        "account sub, user bo: maxwall=02:00:00",
        "cluster tide: maxtresperjob=node=50",
    ):
        assert what in listed, (what, listed)
    assert "suspendtime" not in listed
    assert "denyonlimit" not in listed.lower()
    assert "maxsubmit" not in listed


def test_limits_without_a_word_on_their_enforcement_are_taken_with_a_note(folder: Path) -> None:
    (folder / "slurm.conf").write_text(CONF.replace("AccountingStorageEnforce=associations,limits\n", ""))
    site = read_slurm_site(site_files([folder]))
    assert site.queues().tree[0].limits.cpus == 12
    assert any(what.startswith("AccountingStorageEnforce is not stated") for what in site.unmodelled)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "dump",
            DUMP.replace("'tide'", "'ebb'"),
            "dump: the file belongs to a different cluster (ebb) than slurm.conf (tide)",
        ),
        (
            "assoc",
            "Cluster|Account|User|Share\nebb|lab||1\n",
            "assoc: the file belongs to a different cluster (ebb) than",
        ),
        (
            "events",
            "Cluster|NodeName|TimeStart|TimeEnd|State\nebb|n1|5|9|DOWN\n",
            "events: the file belongs to a different cluster",
        ),
    ],
)
def test_a_listing_of_another_cluster_is_refused(folder: Path, name: str, text: str, words: str) -> None:
    (folder / name).write_text(text)
    ended = invoke("site", "import", folder, "-o", folder / "out.yaml")
    assert ended.exit_code == 2, ended.exception
    assert words in " ".join(ended.stderr.split())


def test_of_a_listing_of_several_clusters_the_own_rows_count(folder: Path) -> None:
    (folder / "dump").unlink()
    (folder / "assoc").write_text("Cluster|Account|User|Share\ntide|lab||30\nebb|lab||9\nebb|other||1\n")
    site = read_slurm_site(site_files([folder]))
    assert [(node.name, node.weight) for node in site.queues().tree] == [("lab", 30)]
    assert "assoc: rows from clusters other than tide" in site.unmodelled
    (folder / "slurm.conf").write_text(CONF.replace("ClusterName=tide\n", ""))
    with pytest.raises(
        TraceError, match=r"assoc: the file lists several clusters \(tide, ebb\); add slurm.conf, which names"
    ):
        read_slurm_site(site_files([folder]))


def site_of(folder: Path, **files: str) -> Any:
    """The site of the folder, with the files added; ``_`` in their names stands for a dot."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return read_slurm_site(site_files([folder]), ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    "name",
    ["slurm.conf.bak", "slurm.conf.old", "slurm.conf~", "slurm.conf.rpmsave", "slurm-2024.conf", "#slurm.conf#"],
)
def test_slurm_reads_slurm_conf_and_no_copy_of_it(folder: Path, name: str) -> None:
    before = read_slurm_site(site_files([folder])).queues()
    old = CONF.replace("tide", "ebb").replace("=500", "=9").replace("include nodes.conf\n", "NodeName=x[1-3] CPUs=2\n")
    (folder / name).write_text(old)
    site = read_slurm_site(site_files([folder]))
    assert (site.cluster_name, site.queues()) == ("tide", before)
    assert f"{name}: not read, because Slurm reads slurm.conf and the files that it includes" in site.unmodelled
    assert ("nodes.conf", "a part of slurm.conf") in site.read


def test_copies_of_other_files_are_not_read_either(folder: Path) -> None:
    site = site_of(folder, qos_txt_old=QOS.replace("|10|", "|99|"), gres_conf="", gres_conf_bak="NodeName=n1 Name=gpu")
    assert [qos.priority for qos in site.queues().qos] == [10, 0]
    assert [node.gpus for node in site.found_nodes()] == [(), (), (("a100", 2),)]


def test_a_copy_of_another_file_is_not_read_where_slurm_conf_has_its_own_name(folder: Path) -> None:
    site = site_of(folder, gres_conf_bak="NodeName=n1 Name=gpu Type=v100 Count=7")
    assert "gres.conf.bak: not read, because Slurm reads gres.conf and the files that it includes" in site.unmodelled
    assert not any(kind == "gres.conf" for _, kind in site.read)


@pytest.mark.parametrize(
    ("gres", "lines", "gpus", "noted"),
    [
        ("gpu:2", "NodeName=g1 Name=gpu Type=l40s", (("l40s", 2),), ""),
        ("gpu:2", "Name=gpu Type=l40s File=/dev/nvidia[0-1]", (("l40s", 2),), ""),
        ("gpu:2", "NodeName=g1 Name=gpu Type=a30 File=/dev/nvidia0\nNodeName=g1 Name=gpu Type=l4 File=/dev/nvidia1",
         (("a30", 1), ("l4", 1)), ""),
        ("gpu:h100:4", "NodeName=g1 Name=gpu File=/dev/nvidia[0-3]", (("h100", 4),), ""),
        ("gpu:4", "NodeName=g1 Name=gpu Type=h100 Count=2", (("h100", 4),), "gpu:4 and gres.conf gpu:h100:2"),
        ("gpu:h100:4", "NodeName=g1 Name=gpu Type=a100 Count=4", (("h100", 4),), "gpu:h100:4 and gres.conf gpu:a100:4"),
        ("gpu:h100:8", "NodeName=g1 Name=gpu Type=h100 File=/dev/nvidia[0-3]", (("h100", 8),), "gres.conf gpu:h100:4"),
        ("", "NodeName=g1 Name=gpu Type=h100 Count=2", (("h100", 2),), "no Gres=gpu, which Slurm needs"),
        ("", "Name=gpu Type=h100 Count=2", (), ""),
    ],
)  # fmt: skip
def test_slurm_conf_counts_gpus_and_gres_conf_names_them(
    folder: Path, gres: str, lines: str, gpus: tuple[tuple[str, int], ...], noted: str
) -> None:
    nodes = NODES.replace("Gres=gpu:a100:2", f"Gres={gres}" if gres else "")
    site = site_of(folder, nodes_conf=nodes, gres_conf=f"AutoDetect=off\n{lines}\n")
    assert site.found_nodes()[-1].gpus == gpus
    assert (noted in " ".join(site.unmodelled)) if noted else not any("gres.conf" in text for text in site.unmodelled)


def test_a_name_with_a_size_counts_more_than_a_feature(folder: Path) -> None:
    nodes = [
        FoundNode("a1", (("tesla_v100-pcie-32gb", 4),), 8, 64, "", True, features=("V100",)),
        FoundNode("a2", (("v100", 4),), 8, 64, "", True, features=("v100_32gb",)),
        FoundNode("a3", (("a100-sxm4-40gb", 4),), 8, 64, "", True, features=("80gb",)),
    ]
    assert [group.gpu for group in grouped(nodes).groups] == ["V100-32", "V100-32", "A100-40"]


def test_a_reservation_within_the_repeated_hour_lasts_as_long_as_it_says(folder: Path) -> None:
    """Clocks in Berlin went back from 3:00 to 2:00 on 26 October 2025, at 1:00 UTC."""
    change_s = 1761440400.0
    text = "".join(
        f"ReservationName={name} StartTime=2025-10-26T{start} EndTime=2025-10-26T{end}{lasts}\n   Nodes=n1 NodeCnt=1\n"
        for name, start, end, lasts in (
            ("over", "02:40:00", "02:10:00", ""),
            ("long", "02:10:00", "02:40:00", " Duration=01:30:00"),
            ("late", "02:50:00", "03:30:00", " Duration=00:40:00"),
            ("wrong", "04:00:00", "03:00:00", ""),
        )
    )
    site = site_of(folder, reservations=text)
    spans = {each.name: (each.start_s - change_s, each.end_s - change_s) for each in site.queues().reservations}
    assert spans == {"over": (-1200, 600), "long": (-3000, 2400), "late": (3000, 5400)}
    assert any("reservation wrong: it ends" in text for text in site.unmodelled)


@pytest.mark.parametrize(
    ("kind", "modes", "restarts"),
    [
        ("partition_prio", ("REQUEUE", "OFF"), True),
        ("partition_prio", ("SUSPEND", "OFF"), False),
        ("none", ("REQUEUE", "OFF"), False),
    ],
)
def test_requeued_jobs_begin_again_after_an_import(
    folder: Path, tmp_path: Path, kind: str, modes: tuple[str, str], restarts: bool
) -> None:
    conf = CONF.replace("PartitionName=side", f"PartitionName=side PreemptMode={modes[0]}")
    conf = conf.replace("PartitionName=main", f"PartitionName=main PreemptMode={modes[1]}")
    (folder / "slurm.conf").write_text(f"PreemptType=preempt/{kind}\nPreemptMode={modes[0]}\n{conf}")
    import_site([folder], tmp_path / "site.yaml")
    text = (tmp_path / "site.yaml").read_text()
    assert ("on_resume: restart" in text) == restarts
