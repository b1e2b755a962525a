"""Back-filling and batch-system policies."""
