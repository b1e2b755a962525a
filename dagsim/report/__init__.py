"""Reports: tables, terminal output and plots."""
