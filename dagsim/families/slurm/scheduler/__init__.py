"""The scheduling of slurmctld as a policy: its rules, its priorities, and the loops that start
jobs."""
