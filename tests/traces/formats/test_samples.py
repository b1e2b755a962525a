"""What each sample file is recognised as, and the questions that its reader answers by an assumption."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagsim.errors import TraceError
from dagsim.traces import READERS, open_trace

PAI = "gang gpu types work"
PODS = "start survivors tenant work"
CELL = "alloc sets demand priority work"
CENTRES = ("acme/trace_seren", "acme/trace_kalos", "eagle/eagle_data", "kestrel/kestrel_jobs", "pm100/job_table")
CENTRES += ("fdata/21_03", "frontier/frontier-completed-job-info")
SAMPLES = {
    **{"alibaba2017/batch_task.csv": "demand graph work", "alibaba2018/batch_task.csv": "demand work"},
    **{"dax/sample.xml": "arrival demand", "google2011/task_events": "constraints demand priority work"},
    "batsim/delays.json": "demand estimate gang",
    **{"gavel/msr.trace": "gang work", "gavel/physical.trace": "gang work", "gavel/shockwave.trace": "batch gang work"},
    **{f"google2019/{name}": CELL for name in ("2019_x_user_requests.csv", "csv", "json", "kaggle_sample.csv")},
    **{"helios/cluster_log.csv": "cluster gang gpu type", "jsonl/jobs.jsonl": "work"},
    **{"alibaba2025/disaggregated_DLRM_sample.csv": "density tenant work"},
    **{"alibaba2026/job_info_df.csv": "gang gpu types priority work", "slurm-events/small.events": "demand work"},
    **{f"{name}.csv": "gang gpu type work" for name in CENTRES},
    **{"itp/cluster01.csv": "gang work", "itp/elastic.csv": "gang work"},
    **{"kubernetes/cluster": PODS, "kubernetes/pods.json": PODS, "kubernetes/workloads.json": PODS},
    **{"openb2023/openb_pod_list_sample.csv": "gpu types priority work"},
    **{"openb2023/openb_pod_list_untimed.csv": "gpu types priority times work"},
    **{f"pai2020/pai_{table}_table.csv": PAI for table in ("group_tag", "instance", "job", "task")},
    **{"pai2020/hydra_sample.csv": "deadline work", "pai2020/pai_job_duration_sample.csv": "gpu types work"},
    **{"pbs/20260105": "arrival demand tenant work", "pipedream/tiny.txt": "arrival demand work"},
    **{"philly/cluster_job_log": "clock gpus work", "philly/philly_list.csv": "clock gpus work"},
    **{"plain/jobs.csv": "work", "plain/tasks.csv": "work", "stg/rand0.stg": "arrival demand work"},
    **{
        "sacct/jobs.json": "demand not listed tenant work",
        "sacct/jobs.txt": "dates demand not listed tenant terms work",
    },
    **{"swf/sample.swf": "demand estimate gang order", "tiresias/muri.csv": "gang unit work"},
    **{"tiresias/sia.csv": "gang work", "tiresias/tiresias.csv": "gang unit work"},
    **{"tpch/tpch_dags.json": "arrival demand work"},
    **{"wfcommons/v13.json": "arrival demand work", "wfcommons/v15.json": "arrival demand work"},
}
"""Files below ``workloads/samples``; a folder of that name is the format."""

NOT_JOBS = (
    *("alibaba2018/machine_meta.csv", "gavel/sample_throughputs.json", "google2011/job_events"),
    *("google2011/machine_events", "google2019/2019_x_host_resource.csv", "helios/cluster_gpu_number.csv"),
    *("nodes/kubectl.json", "nodes/pbsnodes.txt", "nodes/scontrol.json", "nodes/scontrol.txt", "nodes/sinfo.txt"),
    *("openb2023/openb_node_list_sample.csv", "pai2020/pai_machine_spec.csv", "plain/foreign.csv"),
)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.partition("/")[0] in READERS])
def test_a_sample_is_of_the_format_of_its_folder_and_its_assumptions_are_named(samples: Path, name: str) -> None:
    trace = open_trace(samples / name)
    assert trace.format == name.partition("/")[0]
    assert " ".join(sorted(trace.assumptions)) == SAMPLES[name]


A_ROW_A_LINE = {
    **{
        "alibaba2017/batch_task.csv": 0,
        "alibaba2018/batch_task.csv": 0,
        "gavel/msr.trace": 0,
        "gavel/physical.trace": 0,
    },
    **{"helios/cluster_log.csv": 1, "itp/cluster01.csv": 1, "itp/elastic.csv": 1, "jsonl/jobs.jsonl": 1},
    **{"alibaba2025/disaggregated_DLRM_sample.csv": 1, "alibaba2026/job_info_df.csv": 1},
    **{f"{name}.csv": 1 for name in CENTRES},
    **{"openb2023/openb_pod_list_sample.csv": 1, "openb2023/openb_pod_list_untimed.csv": 1, "plain/jobs.csv": 1},
    **{"pai2020/hydra_sample.csv": 1, "pai2020/pai_job_duration_sample.csv": 1, "philly/philly_list.csv": 1},
    **{"plain/tasks.csv": 1, "sacct/jobs.json": 1, "tiresias/muri.csv": 1, "tiresias/sia.csv": 1},
    "tiresias/tiresias.csv": 1,
}
"""Files with a row in each line, and the number of lines before the first."""


ROWS = [*A_ROW_A_LINE, "philly/cluster_job_log", "swf/sample.swf", "tpch/tpch_dags.json"]


@pytest.mark.parametrize("name", [name for name in ROWS if name.partition("/")[0] in READERS])
def test_every_row_is_counted_once_as_kept_or_dropped(samples: Path, name: str) -> None:
    trace = open_trace(samples / name)
    jobs = list(trace.jobs())
    report = trace.report
    assert report.rows == report.kept + sum(report.dropped.values())
    assert report.kept >= report.jobs == len(jobs)
    if name in A_ROW_A_LINE:
        lines = [line for line in (samples / name).read_text().splitlines() if line.strip()]
        assert report.rows == len(lines) - A_ROW_A_LINE[name]


@pytest.mark.parametrize("name", NOT_JOBS)
def test_a_file_of_machines_is_no_trace(samples: Path, name: str) -> None:
    with pytest.raises(TraceError, match=r"not recognised|dagsim site import"):
        open_trace(samples / name)
