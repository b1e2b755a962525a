"""The families: one folder for each subject that the core does not need (``dagsim.family``)."""
