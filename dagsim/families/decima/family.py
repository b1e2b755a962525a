"""The entries that the Decima family registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "learning on Spark with Decima's graph network",
    needs=("learning", "spark"),
    adds={
        "nets": (
            Entry("decima", ".decima_settings:DecimaNetConfig", "Decima's graph network over stages, with two heads"),
        ),
        "advantages": (
            Entry(
                "fluid", ".fluid:FluidAdvantages", "replicas, minus the part that is explained by the backlog (spark)"
            ),
        ),
        "environments": (Entry("spark", ".decima_env:DecimaEnv", id="dagsim/Decima-v0"),),
        "agents": (Entry("decima", "balanced.pt", "trained on TPC-H queries", ("spark",)),),
    },
)
