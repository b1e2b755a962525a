"""Reports on runs: one HTML file that opens from disk and loads nothing else."""
