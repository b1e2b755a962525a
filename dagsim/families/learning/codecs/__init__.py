"""Codecs of the GPU cluster: they turn a view into arrays for a network, and its choice into
decisions."""
