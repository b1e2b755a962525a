"""Forecasts of when waiting jobs will start, and back-tests of them."""
