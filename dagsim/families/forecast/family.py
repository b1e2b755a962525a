"""The family of forecasts, and what it adds."""

from dagsim.family import Family

FAMILY = Family("when waiting jobs will start", needs=("web",), commands={"eta": ".command"})
