"""The family of the compiled engine, and what it adds."""

from dagsim.family import Family

FAMILY = Family(
    "large plain scenarios on the GPU cluster in compiled code, with the same bytes as SimPy",
    commands={"warm": ".command"},
)
