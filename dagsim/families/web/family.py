"""The family of pages in a browser, and what it adds."""

from dagsim.family import Family

FAMILY = Family(
    "runs as pages for a browser, and a server of them",
    commands={"report": ".command", "serve": ".command"},
    shows_only=True,
)
