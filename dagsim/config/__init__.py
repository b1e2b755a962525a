"""Configurations: their schema, YAML with line numbers, error messages, and bundled files."""
