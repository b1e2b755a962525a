"""Configurations: schema, YAML with line numbers, errors, and bundled files."""
