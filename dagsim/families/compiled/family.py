"""The family of the compiled engine, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "large plain scenarios on the GPU cluster in compiled code, with the same bytes as SimPy",
    uses=("episodes",),
    adds={
        "services": (
            Entry("compiled", ".choice:compiled"),
            Entry("why_not_compiled", ".choice:why_not"),
            Entry("faster_engine", ".choice:faster_engine"),
            Entry("compiled_function", ".jit:dispatched"),
        )
    },
    commands={"warm": ".command"},
)
