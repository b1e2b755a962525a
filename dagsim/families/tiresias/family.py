"""The entries that the Tiresias family registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "Tiresias' own simulator",
    adds={
        "policies": (
            Entry(
                "tiresias-events",
                ".simulator:TiresiasEvents",
                "Tiresias' own simulator, as published: queues by service, decisions at events",
                ("estimates", "preemptive", "costly"),
            ),
        )
    },
)
