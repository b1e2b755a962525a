"""Live pages of runs: a local server that reads run folders and writes nothing."""
