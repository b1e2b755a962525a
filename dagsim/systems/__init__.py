"""Systems that can be simulated."""
