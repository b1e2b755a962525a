"""Training agents: sessions in run folders, validation, and the report on seeds touched once."""
