"""Small tables of several formats."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dagsim.traces import TraceOptions, open_trace
from dagsim.workload.arrays import JobArrays


class Kind(NamedTuple):
    """A format: the head of its files, how a row is put together, rows in order, and where they have id and time."""

    head: str
    separator: str
    rows: tuple[str, ...]
    id: int
    time: int
    options: tuple[TraceOptions, ...]


FORMATS = {
    "swf": Kind(
        "; MaxProcs: 128\n",
        " ",
        (
            "1 0 5 60 4 -1 -1 4 90 -1 1 1 1 -1 1 1 -1 -1",
            "2 10 0 100.5 8 -1 -1 8 100 -1 1 2 1 -1 1 1 -1 -1",
            "3 10 0 70 1 -1 -1 16 -1 -1 0 -1 1 -1 1 1 -1 -1",
            "4 20 0 7 -1 -1 -1 256 7.5 -1 0 02 1 -1 1 1 3 -1",
        ),
        0,
        1,
        (
            TraceOptions(),
            TraceOptions(protocol="pyss"),
            TraceOptions(protocol="rlscheduler"),
            TraceOptions(gpus_per_task=0.5, floor_s=65.0),
            TraceOptions(processors=8),
        ),
    ),
    "helios": Kind(
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n",
        ",",
        (
            "a,u1,vcA,16,64,2,COMPLETED,2020-04-02 00:00:10,2020-04-02 00:00:20,2020-04-02 00:01:20,60,10",
            "b,u1,,0,48,7,FAILED,2020-04-02 00:00:00,,,5.5,0",
            "c,u2,vcA,1,4,,SUSPENDED,2020-02-29 00:00:30,2020-04-02 00:00:30,2020-04-02 00:00:31,,0",
            "d,u2,vcB,0,3,,NODE_FAIL,2020-04-01T00:00:30,,,10,0",
        ),
        0,
        7,
        (TraceOptions(), TraceOptions(floor_s=7.0, reference_gpu="T4")),
    ),
    "pai2020": Kind(
        "job_id,user,gpu_type,num_cpu,num_gpu,num_inst,submit_time,duration,wait_time,size\n",
        ",",
        (
            "7,user-1,T4,6.0,0.5,1,120,60,3.0,40.0",
            "8,user-1,V100,4.0,1,4,100,600.0,3.0,40.0",
            "9,,MISC,4.25,2.5,,130.5,0,3.0,40.0",
            "10,user-2,CPU,12,0,3,100,17,3.0,40.0",
            "11,user-2,,,1,1,1e2,17,3.0,40.0",
        ),
        0,
        6,
        (TraceOptions(), TraceOptions(reference_gpu="T4", floor_s=20.0)),
    ),
    "plain": Kind(
        "id;arrival_s;gpus;duration_s;start_s;end_s;eligible_s;gpu_type;instances;gang;cpus;memory_gb;estimate_s;model;"
        "priority;tenant;user;account;partition;qos;deadline_s;weight\n",
        ";",
        (
            "a;30;0.5;120.5;40;160.5;35;;;;;;;;;;u;acc;p;;;",
            "b;10;1;60;;;;V100|A100;500;;4;16;90;;2;red;;;;;;2.5",
            "c;30;8;;35;95.5;;T4;4;no;;;;bert;;blue;;;p2;q;100;",
            "d;2024-01-01 00:00:40;1;10;;;;T4;6;yes;;;30;;-1;;;;;;;",
            "e;20;1;0:10;;;;gpu7;1;yes;;;30;;-1;;;;;;;",
        ),
        0,
        1,
        (
            TraceOptions(),
            TraceOptions(reference_gpu="A100-40", gpu_names="gpu7=T4", floor_s=20.0),
            TraceOptions(timezone="Europe/Berlin"),
        ),
    ),
    "sacct": Kind(
        "JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|Suspended|TimelimitRaw|NNodes|NCPUS|"
        "ReqTRES|AllocTRES|Restarts|NodeList\n",
        "|",
        (
            "11|u1|a|gpu|normal|COMPLETED|100|100|110|170|60|00:00:00|5|2|8|cpu=8,gres/gpu=4,mem=8G,node=2|"
            "cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=8G,node=2|0|n[01-02]",
            "12_3|u2||cpu,long|low|TIMEOUT|120|Unknown|130|190||00:00:10|UNLIMITED|1|4|cpu=4,mem=1G,node=1|"
            "cpu=4,mem=1G,node=1||n03",
            "13|u2|b|cpu|low|CANCELLED by 7|2020-03-01T00:00:10|2020-03-01T00:00:10|2020-03-01T02:00:10|"
            "2020-03-01T03:00:10|3600|00:00:00|90|1|4|cpu=4,mem=1G,node=1|cpu=4,mem=1G,node=1|0|n03",
            "14|u2|b|cpu|low|PENDING|140|140|Unknown|Unknown|0|00:00:00|90|1|4|cpu=4,mem=1G,node=1|||None assigned",
            "15.batch|||||COMPLETED|140||150|160|10||||4|||0|n03",
            "16|u2|b|cpu|low|FAILED|140|140|150|160|10|00:00:00|90|1|4|cpu=4,mem=1G,node=1|cpu=4,mem=1G,node=1|2|n[03",
        ),
        0,
        6,
        (
            TraceOptions(),
            TraceOptions(reference_gpu="T4", floor_s=20.0, tenant="partition"),
            TraceOptions(timezone="Europe/Berlin", tenant="user", keep_partial=True),
            TraceOptions(demand="requested", protocol="all-attempts", gpus_per_task=0.5),
        ),
    ),
}


def arrays_of(name: str, folder: Path) -> JobArrays:
    """The jobs of a table of this format with 400 rows, of which one is damaged and one repeats an id."""
    kind, path = FORMATS[name], folder / "trace"
    lines = [kind.rows[number % len(kind.rows)].split(kind.separator) for number in range(400)]
    for number, fields in enumerate(lines):
        fields[kind.id] = str(number)
    if name != "sacct":  # which leaves such files to the rows
        lines[17][kind.time] = "x"
    lines[18][kind.id] = "3"
    path.write_text(kind.head + "".join(kind.separator.join(fields) + "\n" for fields in lines))
    return open_trace(path, name).arrays()
