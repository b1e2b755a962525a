"""The family of the compiled engine, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "large plain scenarios on the GPU cluster in compiled code, with the same bytes as SimPy",
    adds={
        "services": (
            Entry("compiled", ".choice:compiled", "the compiled kernel of a run, or the reason against it"),
            Entry("why_not_compiled", ".choice:why_not", "the reason against it that is visible without jobs"),
            Entry("faster_engine", ".choice:faster_engine", "a hint after a long run in SimPy"),
            Entry("compile", ".jit:dispatched", "compiles a function, if numba is installed"),
        )
    },
    commands={"warm": ".command"},
)
