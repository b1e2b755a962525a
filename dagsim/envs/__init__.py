"""Environments for learning: codecs between views and arrays, rewards as folds, and a thin Gymnasium adapter."""
