"""Real clusters: lists of their nodes, the configuration of their schedulers, and logs without names."""
