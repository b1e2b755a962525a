"""Non-preemptive orders: which ready task starts first."""
