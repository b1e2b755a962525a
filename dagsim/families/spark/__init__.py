"""Spark: jobs are DAGs of stages. Stages have many short tasks, which run on executors that can
move between jobs (Mao et al. 2019).
"""
