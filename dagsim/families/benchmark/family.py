"""The family of the benchmark, and what it adds."""

from dagsim.family import Family

FAMILY = Family(
    "a frozen benchmark that anybody can submit to, and published figures of papers beside ours",
    needs=("bounds", "web"),
    commands={"bench": ".command", "paper": ".command"},
)
