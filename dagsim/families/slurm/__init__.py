"""Slurm: its scheduler as a policy, its accounting and its queue as traces, and the configuration
of its sites."""
