"""Kubernetes' own words: quantities, what a pod asks for, when it ran."""
