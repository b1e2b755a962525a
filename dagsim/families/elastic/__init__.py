"""Elastic jobs: training on a number of GPUs and with a batch size that the scheduler chooses.

``goodput.py`` models how fast a job learns, ``profiles.py`` reads measured applications, and
``jobs.py`` combines both into a job with progress. ``stepping.py`` runs such jobs as Pollux's
simulator does, under the policies of ``policies.py`` and Pollux's own search in ``search.py``.
``sia.py`` is the integer program of Sia.
"""
