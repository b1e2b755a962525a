"""Kinds of files that look like a trace but cannot be read as one. Each has a name, and advice on
what to do instead.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dagsim.traces.source import Source


class UnreadKind(NamedTuple):
    """A kind of file that dagsim does not read as a trace."""

    name: str
    advice: str
    lines: str
    """A pattern that matches the beginning of one of the first lines."""


_SITE = "make a configuration from it with dagsim site import FILE -o site.yaml, and give that with --config"
_KINDS = tuple(
    [
        UnreadKind(*kind)
        for kind in (
            (
                "a Pegasus workflow.yml",
                "it has no run times; wfcommons-pegasus makes WfFormat from a finished run, which dagsim reads",
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
            ("the output of scontrol show nodes", _SITE, r"NodeName=\S+ Arch="),
            ("a slurm.conf", _SITE, r"(?i)\s*(ClusterName|ControlMachine|SlurmctldHost|NodeName)\s*="),
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
                r"(job-ID\s+prior\s+name|.*<job_info)",
            ),
            (
                "the output of qacct",
                "take the file that it reads: $SGE_ROOT/CELL/common/accounting",
                r"qname\s+\S+\s*$",
            ),
            ("an XML listing of Torque", "take qstat -f without -x", r".*<Data><Job>"),
            (
                "a table of qstat, or the output of tracejob",
                "take qstat -f (with -F json in OpenPBS), or the accounting: server_priv/accounting",
                r"(Job id\s+Name\s+User\s|Job ID\s+Username\s+Queue\s|"
                r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d(\.\d+)?  ?[SLAM] )",
            ),
            (
                "a table or XML of HTCondor",
                "take the finished jobs as condor_history -json, or -long",
                r"(\s*ID\s+OWNER\s+SUBMITTED\s+RUN_TIME|OWNER\s+BATCH_NAME\s+SUBMITTED|.*<classads>)",
            ),
            ("a table of flux jobs", "take flux jobs -a --json", r"\s*JOBID\s+(QUEUE\s+)?USER\s+NAME\s+ST\s+NTASKS"),
            (
                "a table or a description of kubectl",
                "take kubectl get pods -A -o json",
                r"((NAMESPACE\s+)?NAME\s+(READY|AGE|COMPLETIONS|DESIRED|STATUS)\s|Namespace:\s)",
            ),
            ("a file of Sonar", "take the jobs from Slurm: sacct -P", r".*\"producer\"\s*:\s*\"sonar\""),
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
            (
                "a configuration",
                "pass it to --config, and the log to --trace (or the output of squeue --json to --state)",
                r"(cluster|queues|policy|workload|system|seeds?|base|runtime):(\s|$)",
            ),
        )
    ]
)


def unread_kind(source: Source) -> UnreadKind | None:
    """If dagsim recognises the source as a kind of file that it does not read, return this kind.
    Otherwise, return None.
    """
    lines = source.head(80)
    for kind in _KINDS:
        pattern = re.compile(kind.lines)
        if any(pattern.match(line[:2000]) for line in lines):
            return kind
    return None
