"""RAMP: deep-learning jobs as computation graphs that are split over GPUs on an optical fabric. A
job that cannot start immediately is rejected.
"""
