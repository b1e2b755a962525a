"""The family of compiled episodes, and what it adds."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "episodes of the GPU cluster in compiled code, and the policy that searches with them",
    needs=("compiled", "learning"),
    adds={
        "compiled_sources": (Entry("episodes", ".", "all files here"),),
        "policies": (
            Entry(
                "search",
                ".search:Search",
                "best decision of several policies, by simulated futures",
                ("estimates", "costly"),
            ),
        ),
    },
)
