"""The entries that the family of compiled episodes registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "episodes of the GPU cluster in compiled code, and the policy that searches with them",
    needs=("compiled", "learning"),
    adds={
        "compiled_sources": (Entry("episodes", ".", "all files here"),),
        "services": (
            Entry("why_no_episodes", ".offer:why_no_episodes"),
            Entry("compiled_episodes", ".offer:compiled_episodes"),
            Entry("episodes_at_hand", ".offer:at_hand"),
            Entry("compile_episodes", ".episode_calls:compile_episodes"),
        ),
        "policies": (
            Entry(
                "search",
                ".search:Search",
                "simulates decisions of several policies, and carries out the best one",
                ("estimates", "costly"),
            ),
        ),
    },
)
