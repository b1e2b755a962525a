"""The family of PBS, and what it adds."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "logs and sites of PBS",
    needs=("site",),
    adds={"readers": (Entry("pbs", ".pbs_jobs:Pbs"), Entry("qstat", ".pbs_jobs:Qstat"))},
)
