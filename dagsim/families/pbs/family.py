"""The family of PBS, and what it adds."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "logs and sites of PBS",
    needs=("site",),
    adds={
        "readers": (Entry("pbs", ".pbs_jobs:Pbs"), Entry("qstat", ".pbs_jobs:Qstat")),
        "services": (
            Entry("is_qstat", ".pbs_jobs:is_qstat", "true for the output of qstat"),
            Entry("waiting_comments", ".pbs_jobs:waiting_comments", "jobs that wait, each with its comment"),
        ),
    },
)
