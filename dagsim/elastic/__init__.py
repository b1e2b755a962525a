"""Elastic jobs: training that runs on a number of GPUs and with a batch size of the scheduler's
choice.

``goodput.py`` models how fast a job learns, ``profiles.py`` reads measured applications, ``jobs.py``
combines both into a job with progress, and ``stepping.py`` runs such jobs under the policies of
``policies.py`` as Pollux's simulator does. ``sia.py`` is the integer program of Sia.
"""
