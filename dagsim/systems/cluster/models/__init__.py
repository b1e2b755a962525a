"""Models of everything that takes time or goes wrong on the GPU cluster."""
