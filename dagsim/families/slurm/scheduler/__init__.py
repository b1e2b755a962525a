"""slurmctld as a policy: the rules, the priorities and the loops that start jobs."""
