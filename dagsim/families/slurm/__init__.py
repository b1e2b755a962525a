"""Slurm: its scheduler as a policy, its accounting and queue as traces, and the configuration of its sites."""
