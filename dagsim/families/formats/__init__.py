"""Readers for published traces, and for logs from further batch systems, one module per format."""
