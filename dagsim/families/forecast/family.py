"""The forecast family, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "when waiting jobs will start",
    needs=("web",),
    uses=("kubernetes", "slurm"),
    adds={
        "services": (
            Entry("forecast_snapshot", ".forecast_page:forecast_snapshot"),
            Entry("explain_waiting", ".command:explain_waiting"),
        )
    },
    commands={"eta": ".command"},
)
