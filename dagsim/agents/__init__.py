"""Agents that learn to schedule. torch lives here; ``config`` and the list of algorithms load without it."""
