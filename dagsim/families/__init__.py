"""The families: one folder for each subject that the core can do without (``dagsim.family``)."""
