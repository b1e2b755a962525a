"""The entries that the Spark family registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "stages on Spark executors, as in Decima",
    adds={
        "systems": (Entry("spark", ".scenario:SparkScenario", "DAGs of stages on Spark executors (Decima)"),),
        "lists": (
            Entry("spark-policies", ".policies:SPARK_POLICIES", "policy"),
            Entry("spark-codecs", ".codecs:SPARK_CODECS", "codec"),
            Entry("spark-rewards", ".rewards:SPARK_TERMS", "reward term"),
        ),
    },
)
