"""The configuration of a Slurm site: lists of nodes, slurm.conf, ``sacctmgr`` and the log of slurmctld."""
