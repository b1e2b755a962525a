"""Readers for published traces, and for logs from other batch systems, one module per format."""
