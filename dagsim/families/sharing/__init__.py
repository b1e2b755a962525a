"""GPUs that several tasks share."""
