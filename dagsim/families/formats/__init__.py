"""Readers of published traces and of the logs of further batch systems, one module per format."""
