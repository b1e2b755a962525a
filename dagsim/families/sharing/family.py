"""The entries that the family of shared GPUs registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "rates of tasks that share a GPU",
    adds={
        "sharings": (Entry("pairs", ".pairs:PairTable", "measured rates of pairs of tasks on a GPU, and a default"),),
    },
)
