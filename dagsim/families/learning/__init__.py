"""Agents that learn to schedule. Only ``settings`` and the list of algorithms load without torch."""
