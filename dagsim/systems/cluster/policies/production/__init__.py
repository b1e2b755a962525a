"""Schedulers that clusters run today: Slurm, Kueue and the default scheduler of Kubernetes."""
