"""The forecast family, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "when waiting jobs will start",
    uses=("kubernetes", "slurm", "web"),
    adds={
        "services": (
            Entry("queue_snapshots", ".snapshots:queue_snapshots"),
            Entry("explain_waiting", ".command:explain_waiting"),
        )
    },
    commands={"eta": ".command"},
)
