"""Experiments: configurations, runs over several seeds, and the folders that store them."""
