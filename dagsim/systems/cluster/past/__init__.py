"""Simulations that begin in the middle of a log, with jobs that are running and waiting."""
