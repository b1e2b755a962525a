"""Codecs for the GPU cluster. They turn a view into arrays for a network, and the choice of the
network into decisions.
"""
