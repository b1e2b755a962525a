"""The entries that the family of schedulers in other programs registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "schedulers in other programs, in any language",
    adds={
        "programs": (
            Entry("exec", ".external:External", "a program that exchanges lines of JSON with dagsim"),
            Entry("batsim", ".batsim:Batsim", "a scheduler written for Batsim, connected through ZeroMQ"),
        )
    },
)
