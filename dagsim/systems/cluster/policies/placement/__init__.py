"""Placement rules: the GPU type and the nodes of a start."""
