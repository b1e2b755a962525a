"""Lengths of time, in seconds, that several modules for forecasts use."""

from dagsim.model.arithmetic import DAY_S

HOUR_S, WEEK_S = 3600.0, 7 * DAY_S

WITHIN_S = {"within_1_min": 60.0, "within_10_min": 600.0, "within_1_h": 3600.0}
"""Names of the scores that are shares of starts, each with the largest allowed difference from the
median forecast, in seconds."""
