"""Reports: tables, the terminal, and plots."""
