"""Agents that learn to schedule. Everything here except ``settings`` and the list of algorithms needs
torch.
"""
