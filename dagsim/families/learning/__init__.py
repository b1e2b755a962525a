"""Agents that learn to schedule. Only ``settings`` and the list of algorithms can be loaded without
torch."""
