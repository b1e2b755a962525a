"""The capacity-planning family, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "how many machines a load needs, what a change would do, and the rules of a site that fit its log",
    uses=("kubernetes", "slurm", "web"),
    adds={"public": (Entry("plan", ".planning:plan"),)},
    commands={"whatif": ".command", "plan": ".command", "calibrate": ".command"},
)
