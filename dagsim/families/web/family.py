"""The family of pages for browsers, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "runs as pages for a browser, and a server for these pages",
    uses=("forecast",),
    adds={
        "services": (
            Entry("write_page", ".document:write_page"),
            Entry("page_of_tables", ".document:page_of_tables"),
            Entry("page_of_parts", ".document:page_of_parts"),
        )
    },
    commands={"report": ".command", "serve": ".command"},
    shows_only=True,
)
