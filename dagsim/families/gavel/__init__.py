"""Gavel, which allocates shares of time on different GPU types, and runs tasks in rounds (Narayanan
et al., OSDI 2020).
"""
