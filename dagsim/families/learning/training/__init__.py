"""Training runs: settings, roll-outs, learners, validation and the final test."""
