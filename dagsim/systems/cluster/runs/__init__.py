"""Runs of tasks: their phases, transfers, the communication of gangs, and suspensions."""
