"""The entries that the Gavel family registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "Gavel's policies as published, as deployed, and at events",
    adds={
        "policies": (
            Entry(
                "gavel",
                ".published:Gavel",
                "Gavel's rounds and policies, as published",
                ("estimates", "preemptive", "costly"),
                (
                    ("objective", "gavel-events[objective=...]"),
                    ("deployed", "dagsim.families.gavel.deployed:DeployedGavel[policy=...]"),
                ),
            ),
            Entry(
                "gavel-events",
                ".events:GavelEvents",
                "based on Gavel: a linear program computes shares; tasks also start between rounds",
                ("estimates", "preemptive", "costly"),
            ),
        )
    },
)
