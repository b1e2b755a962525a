"""The PBS family, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "logs and sites of PBS",
    needs=("site",),
    uses=("slurm",),
    adds={
        "node_lists": (Entry("pbsnodes", ".pbs_nodes:PBSNODES"),),
        "sites": (Entry("PBS", ".pbs_site:read_pbs_site", "the output of `qmgr -c 'print server'`"),),
        "readers": (Entry("pbs", ".pbs_jobs:Pbs"), Entry("qstat", ".qstat:Qstat")),
    },
)
