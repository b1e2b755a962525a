"""Readers for trace formats, one module per format."""
