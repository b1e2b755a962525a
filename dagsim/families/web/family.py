"""The family of pages for browsers, and everything that it registers."""

from dagsim.family import Family

FAMILY = Family(
    "runs as pages for a browser, and a server for these pages",
    uses=("forecast",),
    commands={"report": ".command", "serve": ".command"},
    shows_only=True,
)
