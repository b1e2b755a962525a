"""Agents that learn to schedule. Everything here needs torch, except ``settings`` and the list of
algorithms.
"""
