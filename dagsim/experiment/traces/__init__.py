"""What is done with a trace besides replaying it."""
