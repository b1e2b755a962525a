"""DAG jobs on a cluster."""
