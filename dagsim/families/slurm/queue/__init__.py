"""Slurm's queue at one moment: the reader of ``squeue`` and ``scontrol show job``."""
