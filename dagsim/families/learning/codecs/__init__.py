"""Codecs for the GPU cluster. They turn a view into arrays for a network, and the network's choice
into decisions."""
