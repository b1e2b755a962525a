"""Agents that learn to schedule. Only ``config`` and the list of algorithms load without torch."""
