"""Policies that stop runs to start others."""
