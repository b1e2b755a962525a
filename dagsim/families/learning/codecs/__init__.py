"""Codecs of the GPU cluster: they turn a view into arrays for a net, and its choice into decisions."""
