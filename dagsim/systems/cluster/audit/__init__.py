"""Checks of an input before it is simulated."""
