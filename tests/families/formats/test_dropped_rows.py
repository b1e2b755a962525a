"""Rows that a reader leaves out are counted in its report under the reason, beside the jobs that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reading = Callable[..., Any]

NODE = "node{} -- Op(1) -- forward_compute_time={}, backward_compute_time=1, activation_size=1, parameter_size=1"
ALIBABA = "M1,1,j_1,1,Terminated,100,130,100,0.5"
OLDER = "120,150,11,101,3,Terminated,50,0.002"
MSR = "A3C\tpython3 main.py\t--num_steps\t1\t100\t{}\t1"
LISTED = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,8,30,100,vgg16,150,20"

CASES: list[tuple[str, str, list[str], dict[str, int]]] = [
    ("alibaba2018", "batch_task.csv", [ALIBABA, ",1,j_2,1,Terminated,100,110,100,0.5"], {}),
    ("alibaba2018", "batch_task.csv", [ALIBABA, "M1,1,,1,Terminated,100,130,100,0.5"], {"without job_name": 1}),
    ("alibaba2018", "batch_task.csv", [ALIBABA, "M1,1,j_2,1,Stopped,1,3,,"], {"with an unknown status": 1}),
    ("alibaba2018", "batch_task.csv", [ALIBABA, "M1,1,j_2,1,Running,1,3,,"], {"of tasks that did not terminate": 1}),
    ("alibaba2018", "batch_task.csv", [ALIBABA, "M1,1,j_2,1,Terminated,1,3,much,"],
     {"with a value that is not a number": 1}),
    ("alibaba2018", "batch_task.csv", [ALIBABA, "M1,1,j_2,1,Terminated,-1,3,,"], {"with an impossible time": 1}),
    ("alibaba2018", "batch_task.csv", [ALIBABA, "M1,1,j_2,1,Terminated,5,3,,"], {"with an end before the start": 1}),
    ("alibaba2018", "batch_task.csv", [ALIBABA, "M1,1,j_2,1,Terminated,5,0,,"], {"without end": 1}),
    ("alibaba2018", "batch_task.csv", [ALIBABA, "M1,1,j_2,1,Terminated,1,3,,", "R1,1,j_2,1,Terminated,1,9,,"],
     {"with a task number that another row has": 1, "of jobs that did not finish as a whole": 1}),
    ("alibaba2017", "batch_task.csv", [OLDER, "120,150,,101,3,Terminated,50,0.002"], {"without job_id": 1}),
    ("alibaba2017", "batch_task.csv", [OLDER, "1,2,12,1,1,Waiting,,"], {"of tasks that did not terminate": 1}),
    ("alibaba2017", "batch_task.csv", [OLDER, "1,2,12,1,1,Gone,,"], {"with an unknown status": 1}),
    ("alibaba2017", "batch_task.csv", [OLDER, "5,2,12,1,1,Terminated,,"], {"with an end before the start": 1}),
    ("alibaba2017", "batch_task.csv", [OLDER, "1,2,12,1,1,Terminated,-1,"], {"with a negative demand": 1}),
    ("alibaba2017", "batch_task.csv", [OLDER, "1,2,12,1,1,Terminated,1,", "1,9,12,1,1,Terminated,1,"],
     {"with a task_id that another row has": 1, "of jobs that did not finish as a whole": 1}),
    ("gavel", "msr.trace", [MSR.format(0), MSR.format(-1)], {"with a negative arrival or number of steps": 1}),
    ("gavel", "msr.trace", [MSR.format(0), MSR.format(0).replace("100", "-3")],
     {"with a negative arrival or number of steps": 1}),
    ("tiresias", "list.csv", [LISTED, "2,1,-5,100,vgg16,150,20"], {"with a negative submit_time": 1}),
    ("tiresias", "list.csv", [LISTED, "2,1,5,100,vgg16,-150,20"], {"with a negative duration": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("format", "name", "rows", "dropped"), CASES)
def test_a_row_that_cannot_be_a_job_is_counted_under_its_reason(
    read: Reading, tmp_path: Path, format: str, name: str, rows: list[str], dropped: dict[str, int]
) -> None:
    (tmp_path / name).write_text("\n".join(rows) + "\n")
    got = read(tmp_path / name, format)
    assert (got.dropped, len(got.jobs)) == (dropped, 1 if dropped else 2)


@pytest.mark.parametrize(
    ("format", "files", "dropped"),
    [
        ("pipedream", [NODE.format(1, 2), NODE.format(1, 2) + "\n" + "nonsense"],
         {"that are neither a node nor an edge": 1, "of models from which another node was dropped": 1}),
        ("pipedream", [NODE.format(1, 2), NODE.format(1, 2) + "\n" + NODE.format(1, 3)],
         {"with the same id as another node": 1, "of models from which another node was dropped": 1}),
        ("pipedream", [NODE.format(1, 2), NODE.format(2, 2)], {"of models whose nodes are not numbered from 1": 1}),
        ("stg", ["1\n0 0 0\n1 7 1 0\n2 0 1 1\n", "1\n0 0 0\n1 7 1 0\n1 9 1 0\n"],
         {"with the same id as another row": 1, "of graphs from which another row was dropped": 2}),
        ("stg", ["1\n0 0 0\n1 7 1 0\n2 0 1 1\n", "2\n0 0 0\n1 7 1 0\n2 0 1 1\n"],
         {"with a different number of rows than stated": 3}),
    ],
)  # fmt: skip
def test_a_graph_that_lost_a_row_is_left_out_as_a_whole(
    read: Reading, tmp_path: Path, format: str, files: list[str], dropped: dict[str, int]
) -> None:
    ending = "stg" if format == "stg" else "txt"
    for place, text in enumerate(files):
        (tmp_path / f"g{place}.{ending}").write_text(text + "\n")
    got = read(tmp_path, format)
    assert ([job.id for job in got.jobs], got.dropped) == (["g0"], dropped)
