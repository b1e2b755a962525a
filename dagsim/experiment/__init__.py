"""Experiments: configurations, runs over several seeds, and the folders they are kept in."""
