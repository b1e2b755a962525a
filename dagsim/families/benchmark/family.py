"""The benchmark family, and everything that it registers."""

from dagsim.family import Family

FAMILY = Family(
    "a frozen benchmark to which anybody can submit, and published results of papers beside ours",
    needs=("bounds",),
    uses=("ramp", "spark", "web"),
    commands={"bench": ".command", "paper": ".command"},
)
