"""Random logs with a known truth, written in the ways of real tools (``scripts/check_inputs.py``)."""
