"""Files that look like traces and are not read are called by their names."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from support.command_line import invoke

from dagsim.errors import TraceError
from dagsim.traces import recognise

FILES = {
    "a Pegasus workflow.yml, not": 'x-pegasus:\n  apiLang: python\npegasus: "5.0.4"\nname: diamond\njobs: []\n',
    "a DAGMan file of HTCondor": "# two nodes\nJOB A a.sub\nJOB B b.sub\nPARENT A CHILD B\n",
    "an event log of HTCondor": "000 (0812.000.000) 2026-03-02 08:00:01 Job submitted from host: <h>\n...\n",
    "a trace.txt of Nextflow": "task_id\thash\tnative_id\tname\tstatus\n1\tab/cd\t99\tFASTQC\tCOMPLETED\n",
    "the output of sinfo": "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu* up 2-00:00:00 4 idle g[1-4]\n",
    "a slurm.conf, not": "# slurm.conf\nClusterName=ourCluster\nSlurmctldHost=head\n",
    "the output of qmgr": "#\ncreate queue batch\nset queue batch queue_type = Execution\n",
    "the output of bjobs": "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n",
    "the output of qstat of Grid Engine": "job-ID  prior   name       user         state submit/start at     queue\n",
    "the output of qacct": "=====\nqname        all.q\nhostname     n1\n",
    "an XML listing of Torque": "<Data><Job><Job_Id>7.server</Job_Id></Job></Data>\n",
    "the output of qstat of Grid Engine, not": "<?xml version='1.0'?>\n<job_info  xmlns:xsd='x'>\n  <queue_info>\n",
    "a table of qstat": "Job id            Name     User     Time Use S Queue\n-------  ----\n7.srv a mia 0 R batch\n",
    "a table of qstat, or the output of tracejob": "\nJob: 7.srv\n\n03/02/2026 08:00:01  S    Job Queued\n",
    "a table or XML of HTCondor": " ID     OWNER          SUBMITTED   RUN_TIME     ST COMPLETED   CMD\n",
    "a table of flux jobs": "       JOBID QUEUE    USER     NAME       ST NTASKS NNODES     TIME INFO\n",
    "a table or a description of kubectl": "NAMESPACE   NAME      READY   STATUS\nlab a-0 1/1 Running\n",
    "a file of Sonar": '{\n "meta": {"producer":"sonar"}, "data": {"type":"jobs", "slurm_jobs":[{"job_state":"R"}]}}\n',
    "a scrape of Prometheus": "# HELP node_cpu seconds\n# TYPE node_cpu counter\nnode_cpu 7\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_known_kind_is_called_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "log").write_text(FILES[name])
    with pytest.raises(TraceError, match=f"log: this is {name}") as caught:
        recognise(tmp_path / "log")
    assert ", not a log of jobs that dagsim reads; " in str(caught.value)


@pytest.mark.parametrize(
    ("magic", "name"),
    [(b"PK\3\4", "a ZIP archive or a spreadsheet"), (b"BZh91AY", "packed by bzip2"), (b"SQLite format 3\0", "SQLite")],
)
def test_a_packed_file_is_told_how_to_unpack_it(tmp_path: Path, magic: bytes, name: str) -> None:
    for file, data in (("log", magic + b"\0\1" * 99), ("log.gz", gzip.compress(magic + b"\0\1" * 99))):
        (tmp_path / file).write_bytes(data)
        with pytest.raises(TraceError, match=name):
            recognise(tmp_path / file)


@pytest.mark.parametrize(
    "text",
    [
        "\nAccounting information about jobs that are: \n  - submitted by users mia, \n",
        "Job <412>, User <mia>, Project <default>, Mail <mia>, Status <DONE>, Queue <night>\n",
    ],
)
def test_other_outputs_of_lsf_are_called_by_their_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(
        TraceError, match="bacct of LSF, not a log of jobs that dagsim reads; take the accounting instead"
    ):
        recognise(tmp_path / "log")


def test_the_error_of_an_unknown_file_begins_with_what_helps(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("auftrag,beginn,karten,dauer\n7,0,2,30\n")
    ended = invoke("trace", "info", tmp_path / "x.csv")
    assert ended.exit_code == 2
    start = f"error: {tmp_path / 'x.csv'}: not recognised as a trace; if it is a table, its columns are auftrag, beginn"
    assert " ".join(ended.output.split()).startswith(start)
