"""The family of real clusters, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "real clusters as configurations, and logs without names",
    adds={
        "services": (Entry("holds_site", ".site_import:holds_site"), Entry("import_site", ".cluster_file:import_site")),
    },
    commands={"site": ".command", "trace anonymise": ".command"},
)
