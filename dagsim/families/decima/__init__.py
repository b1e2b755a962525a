"""Decima: learning to schedule Spark jobs, with Decima's graph network and its advantage estimators
(Mao et al., SIGCOMM 2019).
"""
