"""The entries that the RAMP family registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "computation graphs, partitioned over servers of an optical fabric",
    needs=("fabric",),
    adds={
        "systems": (
            Entry("ramp", ".scenario:RampScenario", "computation graphs, partitioned, on an optical fabric (PAC-ML)"),
        ),
        "lists": (
            Entry("ramp-policies", ".policies:RAMP_POLICIES", "policy"),
            Entry("ramp-codecs", ".codecs:RAMP_CODECS", "codec"),
            Entry("ramp-rewards", ".rewards:RAMP_TERMS", "reward term"),
        ),
    },
)
