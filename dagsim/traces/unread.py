"""Files that look like a trace but are not read: each by its name, with advice on what to do
instead."""

from __future__ import annotations

import re
from typing import NamedTuple

from dagsim.traces.source import Source


class UnreadKind(NamedTuple):
    """A kind of file that dagsim does not read as a trace."""

    name: str
    advice: str
    lines: str
    """Pattern that one of the first lines matches from its beginning."""


_SITE = "it describes a cluster: dagsim site import FILE -o site.yaml"
_KINDS = tuple(
    [
        UnreadKind(*kind)
        for kind in (
            (
                "a Pegasus workflow.yml",
                "it has no run times; wfcommons-pegasus makes WfFormat of a finished run, which dagsim reads",
                r"\s*(x-)?pegasus:",
            ),
            (
                "a DAGMan file of HTCondor",
                "it has no run times; take those of the finished jobs: condor_history -json",
                r"(?i)\s*(JOB\s+\S+\s+\S+\.(sub|submit|condor)\b|PARENT\s+\S+.*\sCHILD\s)",
            ),
            (
                "an event log of HTCondor",
                "take the finished jobs as JSON: condor_history -json > jobs.json",
                r"\d{3} \(\d+\.\d+\.\d+\) .*Job (submitted|executing|terminated)",
            ),
            (
                "a trace.txt of Nextflow",
                "its columns can be mapped if it was written with raw numbers (trace.raw = true): --map id=task_id,"
                "arrival_s=submit,start_s=start,end_s=complete,cpus=cpus",
                r"task_id\thash\t",
            ),
            (
                "a log in the Grid Workloads Format",
                "map its columns: --map id=JobID,arrival_s=SubmitTime,duration_s=RunTime,cpus=NProcs",
                r"[#;]?\s*JobID\s+SubmitTime\s+WaitTime\s+RunTime\s+NProc",
            ),
            ("the output of sinfo", _SITE + " (from scontrol show nodes)", r"PARTITION\s+AVAIL\s+TIMELIMIT"),
            ("a slurm.conf", _SITE, r"(?i)\s*(ClusterName|ControlMachine|SlurmctldHost|NodeName)\s*="),
            ("the output of scontrol show nodes", _SITE, r"NodeName=\S+ Arch="),
            ("the output of pbsnodes", _SITE, r"\s+(Mom|ntype|state) = "),
            ("the output of qmgr", _SITE, r"(create queue|set (server|queue)) "),
            (
                "the output of bjobs, bhist or bacct of LSF",
                "take the accounting instead: $LSB_SHAREDIR/CLUSTER/logdir/lsb.acct",
                r"(?i)(JOBID\s+USER\s+(STAT|JOB_NAME)|Summary of time in seconds|(\w+ )?accounting information about|"
                r"Job <\d+)",
            ),
            (
                "the output of qstat of Grid Engine",
                "take the accounting instead: $SGE_ROOT/CELL/common/accounting",
                r"job-ID\s+prior\s+name",
            ),
            (
                "the output of qacct",
                "take the file that it reads: $SGE_ROOT/CELL/common/accounting",
                r"qname\s+\S+\s*$",
            ),
            ("an XML listing of a batch system", "take qstat -f, with -F json in OpenPBS", r".*<(Data><Job>|job_info)"),
            (
                "a scrape of Prometheus",
                "it has metrics, not jobs; take the jobs from the scheduler",
                r"(# (HELP|TYPE) |\{\"status\":\s*\"success\",\s*\"data\":)",
            ),
            (
                "a timeline for Chrome's or Perfetto's viewer",
                "take the log of the scheduler",
                r"\s*(\{\s*\"traceEvents\"|\[\s*\{\s*\"(ph|name|cat)\".*\"ph\":)",
            ),
        )
    ]
)


def unread_kind(source: Source) -> UnreadKind | None:
    """Return the kind of file that the source is, if it is a known kind that dagsim does not
    read."""
    lines = source.head(80)
    for kind in _KINDS:
        pattern = re.compile(kind.lines)
        if any(pattern.match(line[:2000]) for line in lines):
            return kind
    return None
