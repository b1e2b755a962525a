"""Slurm: its scheduler as a policy, readers for its accounting and its queue, and the import of
its sites' configuration.
"""
