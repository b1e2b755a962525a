"""The page of a run, live: a server of this machine that reads run folders and writes nothing."""
