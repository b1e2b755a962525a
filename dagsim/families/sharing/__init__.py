"""Sharing of GPUs between tasks."""
