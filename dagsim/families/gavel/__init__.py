"""Gavel: shares of time by heterogeneity-aware allocations, in rounds (Narayanan et al., OSDI 2020)."""
