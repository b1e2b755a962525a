"""Slurm's accounting, submissions and events: readers of logs, and writers of these formats."""
