"""Accounting of LSF, Grid Engine, HTCondor and Flux, and PBS's qstat: each sample against sums made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command_line import fine, invoke

from dagsim.errors import TraceError
from dagsim.traces import TraceOptions, open_trace, recognise

Reading = Callable[..., Any]


def hours(jobs: list[Any]) -> tuple[float, float]:
    """Core-hours and GPU-hours, task by task."""
    tasks = [task for job in jobs for task in job.tasks]
    cores, gpus = (
        sum(task.work * task.instances * getattr(task, of) for task in tasks) / 3600 for of in ("cpus", "gpus")
    )
    return round(cores, 6), round(gpus, 6)


@pytest.mark.parametrize(
    ("path", "format", "jobs", "core_hours", "gpu_hours"),
    [
        # 801: 4 cores 1 h; 802: 16 cores, 4 GPUs for 2 h; 803: 1 core, 1 GPU for 5 min; 805: 3 cores 15 min
        ("lsf/lsb.acct", "lsf", 4, 4 + 32 + 1 / 12 + 0.75, 8 + 1 / 12),
        # 41: 1 slot 1 h; 42: 8 slots, 2 GPUs for 2 h; 43: 6 slots 15 min; 44: 300 s and 400 s
        ("gridengine/accounting", "gridengine", 5, 1 + 16 + 1.5 + 700 / 3600, 4),
        # 7001.0: 4 cores 1 h; 7001.1: 2 cores, last run of 30 min; 7002: 8 cores, 2 GPUs for 10 min
        ("htcondor/history.json", "htcondor", 3, 4 + 1 + 8 / 6, 2 / 6),
        ("htcondor/history", "htcondor", 3, 4 + 1 + 8 / 6, 2 / 6),
        # 64 cores and 8 GPUs for 1 h; 4 cores for 5 min
        ("flux/jobs.json", "flux", 2, 64 + 1 / 3, 8),
        # 298: 8 cores, 1 GPU, 1.5 h; 299: 32 cores 5 min
        pytest.param("pbs/qstat-x.json", "pbs", 2, 12 + 32 / 12, 1.5, marks=pytest.mark.family("pbs")),
        # 310: 32 cores, 4 GPUs, limit 2 h; 311: 16 cores, 2 GPUs, limit 1 h
        pytest.param("qstat/qstat.txt", "qstat", 2, 64 + 16, 8 + 2, marks=pytest.mark.family("pbs")),
    ],
)
def test_jobs_and_hours_are_those_of_the_records(
    read: Reading, samples: Path, path: str, format: str, jobs: int, core_hours: float, gpu_hours: float
) -> None:
    assert recognise(samples / path) == format
    got = read(samples / path)
    assert len(got.jobs) == jobs
    assert hours(got.jobs) == (round(core_hours, 6), round(gpu_hours, 6))


def test_lsf_counts_the_lists_within_a_record(read: Reading, samples: Path) -> None:
    got = read(samples / "lsf" / "lsb.acct")
    wide, uneven = got.job("802"), got.job("805")
    assert (wide.tasks[0].instances, wide.tasks[0].gpus, wide.tasks[0].gpu_types) == (2, 2, ("V100-32",))
    assert (wide.observed_start_s, wide.observed_nodes, wide.account) == (400, ("g01", "g02"), "vision")
    assert (uneven.tasks[0].instances, uneven.eligible_s, uneven.observed_start_s) == (3, 600, 700)
    assert got.job("803[3]").tasks[0].memory_gb == 16
    assert dict(got.trace.report.skipped) == {"of other records": 1}
    assert got.dropped == {"that never ran": 1}
    assert got.trace.report.contradictions["text"].count == 2


def test_grid_engine_joins_no_slaves_and_keeps_tasks_of_arrays(read: Reading, samples: Path) -> None:
    got = read(samples / "gridengine" / "accounting")
    assert [job.id for job in got.jobs] == ["41", "42", "43", "44.1", "44.2"]
    shared, spread = got.job("42"), got.job("43")
    assert (shared.tasks[0].instances, shared.tasks[0].cpus, shared.tasks[0].gpus) == (1, 8, 2)
    assert (shared.tasks[0].estimate, shared.account) == (14_400, "imaging")  # h_rt=04:00:00 has colons of its own
    assert (spread.tasks[0].instances, spread.tasks[0].cpus, spread.observed_nodes) == (6, 1, ())
    assert dict(got.trace.report.skipped) == {"of slave tasks": 1}


def test_grid_engine_may_count_milliseconds(read: Reading, samples: Path, tmp_path: Path) -> None:
    seconds = (samples / "gridengine" / "accounting").read_text()
    (tmp_path / "accounting").write_text(
        "\n".join(
            ":".join(f"{field}000" if field.startswith("1790") else field for field in line.split(":"))
            for line in seconds.splitlines()
        )
    )
    assert read(tmp_path / "accounting").jobs == read(samples / "gridengine" / "accounting").jobs


def test_both_forms_of_htcondor_are_the_same_jobs(read: Reading, samples: Path) -> None:
    one, other = (read(samples / "htcondor" / name) for name in ("history.json", "history"))
    assert one.jobs == other.jobs
    assert one.noted == other.noted == {"with several runs, of which the last counts": 1}
    gpu = one.job("7002.0")
    assert (gpu.tasks[0].gpu_types, gpu.observed_gpu, gpu.observed_nodes) == (("A100-80",), "A100-80", ("gpu3.pool",))


def test_flux_counts_gpus_by_its_summary_and_waits_for_dependencies(read: Reading, samples: Path) -> None:
    wide, late = read(samples / "flux" / "jobs.json").jobs
    assert (wide.tasks[0].instances, wide.tasks[0].gpus, wide.tasks[0].cpus, wide.tasks[0].estimate) == (2, 4, 32, 7200)
    assert wide.observed_nodes == ("tuo103", "tuo104")
    assert (late.arrival_s, late.eligible_s, late.observed_start_s, late.tasks[0].estimate) == (
        19.75, 619.75, 629.75, None,
    )  # fmt: skip


def test_flux_names_the_user_and_else_the_number_of_the_user(samples: Path, tmp_path: Path) -> None:
    text = json.loads((samples / "flux" / "jobs.json").read_text())
    named, other = (dict(text["jobs"][0], id=number) for number in (1, 2))
    named |= {"username": "ida", "userid": 31}
    other |= {"username": "", "userid": 32}
    (tmp_path / "jobs.json").write_text(json.dumps(text | {"jobs": [named, other]}))
    assert [job.user for job in open_trace(tmp_path / "jobs.json").jobs()] == ["ida", "32"]


@pytest.mark.family("pbs")
def test_the_queue_of_pbs_is_a_state(samples: Path) -> None:
    trace = open_trace(samples / "qstat" / "qstat.txt")
    running, waiting = list(trace.jobs())
    assert trace.begins_s is not None
    assert trace.begins_s - trace.meta["origin_s"] == 3595  # the last change of a job, 09:00:00
    assert (running.observed_start_s, running.observed_nodes, running.tasks[0].work) == (2395, ("p1", "p2"), 7200)
    assert (waiting.observed_start_s, waiting.arrival_s, waiting.account) == (None, 1795, "chem")
    assert dict(trace.report.skipped) == {"that are held": 1}


@pytest.mark.family("pbs")
def test_text_and_json_of_qstat_are_the_same_jobs(read: Reading, samples: Path, tmp_path: Path) -> None:
    lines = []
    for id, job in json.loads((samples / "pbs" / "qstat-x.json").read_text())["Jobs"].items():
        lines.append(f"Job Id: {id}")
        for key, value in job.items():
            inner = {f"{key}.{name}": part for name, part in value.items()} if isinstance(value, dict) else {key: value}
            lines += [f"    {name} = {part}" for name, part in inner.items()]
        lines.append("")
    (tmp_path / "qstat.txt").write_text("\n".join(lines))
    assert read(tmp_path / "qstat.txt").jobs == read(samples / "pbs" / "qstat-x.json").jobs


CUT = (
    "Job Id: 41.srv\n    Job_Owner = ada@login\n    job_state = F\n    ctime = Tue Mar  3 10:00:00 2026\n"
    "    stime = Tue Mar  3 10:00:00 2026\n    obittime = Tue Mar  3 12:00:00 2026\n"
    "    resources_used.walltime = 02:00:00\n    Resource_List.select = 2:ncpus=8:mem=16gb:ng\n\tpus=4\n"
)


@pytest.mark.parametrize("rest", ["\t", " " * 8])
@pytest.mark.parametrize("before", ["", "\n"])
def test_a_long_value_of_qstat_goes_on_after_a_tab_or_the_spaces_that_copies_make_of_it(
    read: Reading, tmp_path: Path, before: str, rest: str
) -> None:
    (tmp_path / "qstat.txt").write_text(before + CUT.replace("\t", rest))
    (job,) = read(tmp_path / "qstat.txt").jobs
    task = job.graph.tasks[0]
    assert (task.instances, task.gpus, task.cpus, task.work) == (2, 4, 8, 7200)


def test_delimited_records_of_qstat_are_read(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "qstat.txt").write_text(CUT)
    fields = [line.strip().replace(" = ", "=") for line in CUT.replace("\n\t", "").splitlines()]
    (tmp_path / "qstat.dsv").write_text("|".join([*fields, r"Job_Name=a\|b=c"]) + "\n")
    assert read(tmp_path / "qstat.dsv").jobs == read(tmp_path / "qstat.txt").jobs


@pytest.mark.parametrize("name", ["lsf/lsb.acct", "gridengine/accounting", "htcondor/history", "pbs/qstat-x.json"])
def test_a_cut_record_is_dropped_or_named(samples: Path, tmp_path: Path, name: str) -> None:
    text = (samples / name).read_text()
    for cut in range(len(text) // 2, len(text), 97):
        (tmp_path / "log").write_text(text[:cut])
        trace = open_trace(tmp_path / "log", name.partition("/")[0])
        if name.endswith("json"):
            with pytest.raises(TraceError, match=r"log:\d+: invalid JSON"):
                list(trace.jobs())
        else:
            assert list(trace.jobs())
            assert trace.report.open == 0


@pytest.mark.family("pbs", "forecast")
def test_the_queue_of_pbs_can_be_forecast(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "cluster:\n  groups:\n  - {name: p, hosts: 'p[1-2]', count: 2, gpu: V100-16, gpus: 2, cpus: 16}\n"
    )
    options = ["--config", str(tmp_path / "c.yaml"), "--policy", "easy", "--futures", "3", "--json"]
    ended = fine("eta", "--state", samples / "qstat" / "qstat.txt", *options)
    (row,) = json.loads(ended.stdout.splitlines()[-1])["jobs"]
    assert row["job"] == "311"


@pytest.mark.family("pbs", "forecast")
def test_suspended_jobs_of_pbs_resume_with_their_rest_and_others_wait_for_their_begin(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "cluster:\n  groups:\n  - {name: p, hosts: 'p1', count: 1, gpu: V100-16, gpus: 4, cpus: 16}\n"
    )
    common = {"Resource_List.select": "1:ncpus=8:ngpus=4", "Resource_List.walltime": "02:00:00", "obittime": "",
              "resources_used.walltime": "", "mtime": "Mon Sep 21 12:00:00 2026"}  # fmt: skip
    on = {"exec_host": "p1/0*8"}
    queue = [
        {"job_state": "S", "qtime": "Mon Sep 21 11:00:00 2026", "stime": "Mon Sep 21 11:00:00 2026",
         "resources_used.walltime": "00:30:00", **on},
        {"job_state": "R", "qtime": "Mon Sep 21 10:00:00 2026", "stime": "Mon Sep 21 11:30:00 2026", **on},
        {"job_state": "Q", "qtime": "Mon Sep 21 11:10:00 2026", "stime": ""},
        {"job_state": "W", "qtime": "Mon Sep 21 11:20:00 2026", "stime": "",
         "Execution_Time": "Tue Sep 22 12:00:00 2026"},
    ]  # fmt: skip
    (tmp_path / "q").write_text(
        "".join(
            listed(**common | fields, ctime=fields["qtime"], etime=fields["qtime"]).replace(
                "71.front", f"{place}.front"
            )
            for place, fields in enumerate(queue, 1)
        )
    )
    jobs = {job.id: job for job in open_trace(tmp_path / "q").jobs()}
    assert jobs["1"].tasks[0].work == 5400
    options = ["--config", str(tmp_path / "c.yaml"), "--policy", "easy", "--futures", "3", "--json"]
    ended = invoke("eta", "--state", tmp_path / "q", *options)
    rows = {row["job"]: row for row in json.loads(ended.stdout.splitlines()[-1])["jobs"]}
    assert set(rows) == {"1", "3", "4"}
    assert rows["1"]["median_s"] < rows["3"]["median_s"] < 86_400 <= rows["4"]["median_s"] + 1


@pytest.mark.family("pbs")
@pytest.mark.parametrize(
    ("stated", "held"),
    [
        ("exec_vnode=(p1:ncpus=4:ngpus=1)+(p2:ncpus=4:ngpus=1)", (2, 8)),
        ("Resource_List.nodes=2:ppn=3 Resource_List.neednodes=2:ppn=3:gpus=2", (4, 6)),
    ],
)
def test_gpus_of_pbs_may_stand_beside_the_request(read: Reading, tmp_path: Path, stated: str, held: Any) -> None:
    (tmp_path / "20260921").write_text(
        f"09/21/2026 12:00:00;E;5.front;user=mia ctime=1790000000 qtime=1790000000 etime=1790000000 start=1790000100 "
        f"end=1790000700 {stated} resources_used.walltime=00:10:00\n"
    )
    (task,) = read(tmp_path / "20260921", "pbs").jobs[0].tasks
    assert (task.instances * task.gpus, task.instances * task.cpus) == held


def listed(**changed: str) -> str:
    """A finished job as ``qstat -x -f`` prints it."""
    fields = {
        "Job_Owner": "mia@front",
        "job_state": "F",
        "queue": "work",
        "ctime": "Sun Oct 25 01:10:00 2026",
        "qtime": "Sun Oct 25 01:10:00 2026",
        "etime": "Sun Oct 25 01:10:00 2026",
        "stime": "Sun Oct 25 02:50:00 2026",
        "obittime": "Sun Oct 25 02:20:00 2026",
        "resources_used.walltime": "00:30:00",
        "Resource_List.select": "2:ncpus=8",
        **changed,
    }
    return "Job Id: 71.front\n" + "".join(f"    {name} = {value}\n" for name, value in fields.items())


@pytest.mark.family("pbs")
@pytest.mark.parametrize(
    ("field", "arguments", "gpus"),
    [
        ("Submit_arguments", "-l select=2:ncpus=8:ngpus=3 run.sh", 6),
        ("Submit_arguments", "<jsdl:Argument>-l</jsdl:Argument><jsdl:Argument>ngpus=2</jsdl:Argument>", 2),
        ("submit_args", "-q gpu -l nodes=2:ppn=8:gpus=1,walltime=1:00:00 run.sh", 2),
        ("submit_args", "-N ngpus run.sh", 0),
    ],
)
def test_gpus_that_only_the_arguments_of_qsub_ask_for_count_with_a_note(
    tmp_path: Path, field: str, arguments: str, gpus: int
) -> None:
    (tmp_path / "qstat.txt").write_text(listed(**{field: arguments}))
    trace = open_trace(tmp_path / "qstat.txt")
    (job,) = trace.jobs()
    assert sum(task.gpus * task.instances for task in job.tasks) == gpus
    assert ("text" in trace.report.contradictions) == bool(gpus)


@pytest.mark.family("pbs")
def test_a_run_of_qstat_across_the_repeated_hour_lasts_as_long_as_its_wall_time(tmp_path: Path) -> None:
    (tmp_path / "qstat.txt").write_text(listed())
    trace = open_trace(tmp_path / "qstat.txt", options=TraceOptions(timezone="Europe/Berlin"))
    (job,) = trace.jobs()
    assert job.tasks[0].work == 1800.0  # from 02:50 in summer to 02:20 in winter
    assert job.observed_start_s == 6000.0
    assert not trace.report.noted


def condor(**changed: Any) -> dict[str, Any]:
    """A job of HTCondor's history that ran from 1,100 to 1,500 s."""
    ran = {"QDate": 1000, "JobStartDate": 1100, "CompletionDate": 1500, "RemoteWallClockTime": 400, "JobStatus": 4}
    return {"ClusterId": 9, "ProcId": 2} | ran | changed


@pytest.mark.parametrize(
    ("changed", "of_job", "expected"),
    [
        ({"AllowedJobDuration": 700, "MaxRuntime": 900}, "limit", 700.0),
        ({"MaxRuntime": 900}, "limit", 900.0),
        ({"MaxHosts": 3, "RequestCpus": 2}, "instances", (3, 2.0)),
        ({"MaxHosts": 1}, "instances", (1, 1.0)),
        ({"RequestGPUs": 1, "AssignedGPUsType": "Tesla T4"}, "type", ("T4",)),
        ({"AssignedGPUsType": "Tesla T4"}, "type", None),
        ({"AccountingGroup": "lab", "ProjectName": "deep"}, "account", "lab"),
        ({"ProjectName": "deep"}, "account", "deep"),
        ({"User": "ida@pool"}, "user", "ida"),
        ({"Owner": "kit", "User": "ida@pool"}, "user", "kit"),
        ({"RemoteHost": "slot1@a.pool, slot2@a.pool slot1@b.pool"}, "nodes", ("a.pool", "b.pool")),
        ({"JobUniverse": 5}, "partition", "universe-5"),
        ({}, "partition", ""),
        ({"JobCurrentStartDate": 1300}, "start", 300.0),
        ({"CompletionDate": 0, "EnteredCurrentStatus": 1600}, "work", 400.0),
        ({"NumShadowStarts": 2, "JobCurrentStartDate": 1350}, "work", 150.0),
        ({"NumJobStarts": 1, "NumShadowStarts": 2, "JobCurrentStartDate": 1350}, "work", 400.0),
        ({"MemoryProvisioned": 2048, "RequestMemory": 1024}, "memory", 2.0),
        ({"RequestMemory": "512"}, "memory", 0.5),
    ],
)
def test_htcondor_writes_a_fact_under_several_names(
    read: Reading, tmp_path: Path, changed: dict[str, Any], of_job: str, expected: Any
) -> None:
    (tmp_path / "history.json").write_text(json.dumps([condor(**changed)]))
    (job,) = read(tmp_path / "history.json", "htcondor").jobs
    (task,) = job.tasks
    assert job.id == "9.2"
    facts = {
        "limit": task.estimate,
        "instances": (task.instances, task.cpus),
        "type": task.gpu_types,
        "account": job.account,
        "user": job.user,
        "nodes": job.observed_nodes,
        "partition": job.partition,
        "start": job.observed_start_s,
        "work": task.work,
        "memory": task.memory_gb,
    }
    assert facts[of_job] == expected


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ClusterId": None}, "without ClusterId"),
        ({"JobStatus": 2}, "that outlive the trace"),
        ({"JobStatus": 3, "RemoteWallClockTime": 0}, "that never ran"),
        ({"JobStartDate": 0}, "that never ran"),
    ],
)
def test_what_htcondor_does_not_say_drops_the_job(
    read: Reading, tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    record = {name: value for name, value in condor(**changed).items() if value is not None}
    (tmp_path / "history.json").write_text(json.dumps([record, condor(ProcId=3)]))
    got = read(tmp_path / "history.json", "htcondor")
    assert (len(got.jobs), got.dropped) == (1, {reason: 1})


def accounted(category: str, slots: int = 4, environment: str = "mpi", **changed: str) -> str:
    """A record of Grid Engine's accounting: 1,000 s of wait and 2,000 s of run."""
    fields = dict.fromkeys(range(45), "0")
    fields |= {0: "all.q", 1: "n1", 2: "lab", 3: "ida", 4: "job", 5: "71", 6: "sge", 8: "1790001000", 9: "1790002000"}
    fields |= {10: "1790004000", 31: "deep", 33: environment, 34: str(slots), 39: category, 41: "NONE"}
    return ":".join((fields | {int(at[1:]): value for at, value in changed.items()}).values())


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (accounted("-l gpu_card=2,s_rt=900"), (2, 1.0, 2.0, 900.0, "deep")),
        (accounted("-l cuda=4"), (4, 1.0, 1.0, None, "deep")),
        (accounted("-l num_gpu=3,h_rt=600,s_rt=900"), (3, 1.0, 4 / 3, 600.0, "deep")),
        (accounted("-l gpus=2", environment="smp4"), (1, 2.0, 4.0, None, "deep")),
        (accounted("-U all", slots=1, f31="NONE", f6="physics"), (1, 0.0, 1.0, None, "physics")),
        (accounted("-U all", f31="NONE"), (4, 0.0, 1.0, None, "")),
    ],
)
def test_grid_engine_has_gpus_and_limits_in_its_category_only(
    read: Reading, tmp_path: Path, record: str, expected: tuple[Any, ...]
) -> None:
    (tmp_path / "accounting").write_text(record + "\n")
    (job,) = read(tmp_path / "accounting", "gridengine").jobs
    (task,) = job.tasks
    assert (task.instances, task.gpus, task.cpus, task.estimate, job.account) == expected
    assert (job.id, job.user, job.partition, task.work, job.observed_start_s) == ("71", "ida", "all.q", 2000, 1000)


def test_a_record_of_grid_engine_needs_its_fields_and_a_submission(read: Reading, tmp_path: Path) -> None:
    lines = [accounted("-U all"), accounted("-U all", f8="0", f9="0"), ":".join(accounted("-U all").split(":")[:30])]
    (tmp_path / "accounting").write_text("\n".join(lines) + "\n")
    got = read(tmp_path / "accounting", "gridengine")
    assert len(got.jobs) == 1
    assert got.dropped == {"without a submission time": 1, "with too few fields": 1}


def test_a_record_of_grid_engine_that_never_began_has_no_slots(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "accounting").write_text(
        f"{accounted('-U all')}\n{accounted('-U all', f5='72', f9='0', f10='0', f34='0')}\n"
    )
    got = read(tmp_path / "accounting", "gridengine")
    assert len(got.jobs) == 1
    assert got.dropped == {"that never ran": 1}


@pytest.mark.parametrize(
    ("category", "gpus"),
    [("-l gpu_h100=2", 2), ("-l GPU=1", 1), ("-l h_rt=60,l40s=3", 3), ("-l gpu_mem=40", 0), ("-l h_vmem=4", 0)],
)
def test_each_site_has_its_own_name_for_gpus_of_grid_engine(
    read: Reading, tmp_path: Path, category: str, gpus: int
) -> None:
    (tmp_path / "accounting").write_text(accounted(category) + "\n")
    got = read(tmp_path / "accounting", "gridengine")
    assert sum(task.instances * task.gpus for task in got.jobs[0].tasks) == gpus
    assert sum(got.noted.values()) == (gpus > 0)


def test_a_gpu_of_grid_engine_without_a_number_is_told(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "accounting").write_text(accounted("-l gpu=TRUE") + "\n")
    (note,) = read(tmp_path / "accounting", "gridengine").noted
    assert "without a number" in note


_AD = """MyType = "Job"
ClusterId = {id}
QDate = 1780000000
RemoteWallClockTime = 0.0
Owner = "ida"
RequestCpus = 2
RequestMemory = ifThenElse(MemoryUsage =!= undefined, MemoryUsage, 1024)
ProcId = 0
JobCurrentStartDate = 1780000100
JobStatus = 4
CompletionDate = 1780000700
RemoteWallClockTime = 600.0
"""


@pytest.mark.parametrize("first", ["", 'AccountingGroup = "bio"\n'])
def test_ads_of_htcondor_that_nothing_separates_stay_apart(read: Reading, tmp_path: Path, first: str) -> None:
    (tmp_path / "one").mkdir()
    ads = [first + _AD.format(id=id) for id in (51, 52, 53)]
    for number, ad in enumerate(ads):
        (tmp_path / "one" / f"history.{51 + number}.0").write_text(ad)
    (tmp_path / "all").write_text("".join(ads))
    for name in ("one", "all"):
        got = read(tmp_path / name, "htcondor")
        assert [job.id for job in got.jobs] == ["51.0", "52.0", "53.0"]
        assert [task.work for job in got.jobs for task in job.tasks] == [600, 600, 600]
        assert list(got.noted.values()) == [3], "the formula of the memory is told"


def test_gpus_of_htcondor_are_also_those_that_it_assigned_and_formulas_are_told(read: Reading, tmp_path: Path) -> None:
    ad = {"ProcId": 0, "QDate": 1780000000, "JobStatus": 4, "JobCurrentStartDate": 1780000100, "RequestCpus": 2,
          "CompletionDate": 1780000700, "RemoteWallClockTime": 600.0, "Owner": "ida"}  # fmt: skip
    gpus = ({"AssignedGPUs": "GPU-1a,GPU-2b"}, {"RequestGPUs": "/Expr(NumGPUs * 2)/"})
    (tmp_path / "h.json").write_text(json.dumps([{"ClusterId": 5 + at, **ad, **own} for at, own in enumerate(gpus)]))
    got = read(tmp_path / "h.json", "htcondor")
    assert [job.tasks[0].gpus for job in got.jobs] == [2, 0]
    assert {note: count for note, count in got.noted.items() if "RequestGPUs is a formula" in note}.popitem()[1] == 1


def test_flux_may_print_states_as_numbers_and_ranks_with_different_gpus(read: Reading, tmp_path: Path) -> None:
    job = {"userid": 7, "urgency": 16, "t_submit": 100.0, "t_depend": 100.0, "t_run": 110.0, "t_cleanup": 170.0,
           "t_inactive": 170.5, "nnodes": 2, "nodelist": "n[1-2]", "duration": 0.0}  # fmt: skip
    summary = {"annotations": {"sched": {"resource_summary": "rank0/core[0-3],gpu[0-2] rank1/core[0-1],gpu0"}}}
    jobs = [{"id": 1, "state": 64, "ncores": 4, **job}, {"id": 2, "state": 16, **job},
            {"id": 3, "state": "INACTIVE", **job, **summary}]  # fmt: skip
    (tmp_path / "flux.json").write_text(json.dumps({"jobs": jobs}))
    got = read(tmp_path / "flux.json", "flux")
    totals = [[sum(task.instances * getattr(task, of) for task in job.tasks) for of in ("cpus", "gpus")]
              for job in got.jobs]  # fmt: skip
    assert totals == [[4, 0], [6, 4]]
    assert got.dropped == {"that outlive the trace": 1}
