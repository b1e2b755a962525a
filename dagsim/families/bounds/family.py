"""The family of bounds, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "proven lower bounds of completion times, over all schedules of a workload",
    adds={
        "services": (
            Entry("bounds_of_runs", ".bound:bounds_of_runs"),
            Entry("shares_of_the_way", ".bound:shares_of_the_way"),
        )
    },
    commands={"bound": ".command"},
)
