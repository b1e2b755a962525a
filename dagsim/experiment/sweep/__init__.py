"""Sweeps: one experiment under many settings, cell by cell, on this machine or on several."""
