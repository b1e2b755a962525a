"""The family of networks with contention, and everything that it registers."""

from dagsim.family import Entry, Family

_COSTLY = ("estimates", "costly")

FAMILY = Family(
    "links that flows share, topologies, traffic of gangs, and policies that place by topology",
    adds={
        "policies": (
            Entry(
                "topology",
                ".topology_policies:topology",
                "EASY, with each gang in the smallest sufficient node, rack or pod",
                _COSTLY,
            ),
            Entry(
                "block",
                ".topology_policies:block",
                "EASY, with segments of gangs within blocks, as in Slurm's topology/block",
                _COSTLY,
            ),
            Entry(
                "defrag",
                ".defrag:Defrag",
                "like topology, but runs migrate to make room if the gain exceeds the cost",
                ("estimates", "preemptive", "costly"),
            ),
        ),
        "placements": (
            Entry(
                "topology",
                ".topology_placement:SmallestDomain",
                "smallest sufficient node, rack or pod, fullest first",
            ),
            Entry(
                "block", ".topology_placement:SegmentsInBlocks", "segments within blocks, as in Slurm's topology/block"
            ),
            Entry(
                "skew",
                ".topology_placement:SkewRule",
                "Tiresias' rule: models with skewed tensor sizes on few nodes, others anywhere",
            ),
        ),
        "services": (Entry("link_traffic", ".usage:link_traffic"),),
        "networks": (
            Entry("shared", ".shared_network:SharedNetwork", "flows share the links of a topology by max-min fairness"),
        ),
        "runtimes": (
            Entry(
                "llm",
                ".communication:Llm",
                "steps of language models; their time depends on the placement and the network",
            ),
        ),
        "communications": (
            Entry("models", ".communication:ModelTraffic", "traffic per step for each model, with a default"),
        ),
    },
)
