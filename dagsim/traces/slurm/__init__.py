"""Slurm's own words: fields of its accounting, and rows of ``sacct`` as text and as JSON."""
