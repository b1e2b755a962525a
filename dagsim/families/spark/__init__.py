"""Spark: DAGs of stages whose many short tasks run on executors that can move between jobs (Mao et al.
2019).
"""
