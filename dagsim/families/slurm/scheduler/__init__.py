"""slurmctld as a policy: its rules, its priorities and its loops."""
