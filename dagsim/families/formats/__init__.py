"""Readers of published traces, and of logs from further batch systems, one module per format."""
