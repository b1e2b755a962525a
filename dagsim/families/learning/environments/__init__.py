"""Environments of Gymnasium, Stable-Baselines3 and TorchRL for the GPU cluster, and their settings."""
