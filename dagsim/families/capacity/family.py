"""The family of capacity planning, and what it adds."""

from dagsim.family import Family

FAMILY = Family(
    "how many machines a load needs, what a change would do, and the rules of a site that fit its log",
    needs=("web",),
    commands={"whatif": ".command", "plan": ".command", "calibrate": ".command"},
)
