"""Decima: learning on Spark, with its graph network and its estimators (Mao et al., SIGCOMM 2019)."""
