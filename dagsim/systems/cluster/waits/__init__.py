"""The causes of waits, in a log and at present, and of simulations that cannot continue."""
