"""The entries that the PAC-ML family registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "learning on RAMP with PAC-ML's graph network",
    needs=("learning", "ramp"),
    adds={
        "nets": (
            Entry(
                "pac_ml",
                ".pac_ml_settings:PacMlConfig",
                "PAC-ML's graph network over a computation graph, a score per row",
            ),
        ),
        "environments": (Entry("ramp", ".partition_env:PartitionEnv", id="dagsim/Partition-v0"),),
        "agents": (Entry("ppo", "pac_ml.pt", "trained on PAC-ML's setting A", ("ramp",)),),
    },
)
