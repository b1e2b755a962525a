"""Training agents: sessions in run folders, validation, and the report on seeds used only once."""
