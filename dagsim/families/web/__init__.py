"""The report of runs as one HTML file that opens from disk and loads nothing else."""
