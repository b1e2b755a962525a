"""Elastic jobs: training jobs for which the scheduler chooses the number of GPUs and the batch
size.

``goodput.py`` models how fast a job learns, and ``profiles.py`` reads measurements of applications.
``training_jobs.py`` combines both into a job with progress. ``genetic.py`` contains Pollux's
search, and ``sia.py`` contains Sia's integer program. ``tasks.py`` gives the tasks of any workload
a range of GPUs, and the policies in ``pollux_policy.py``, ``sia_policy.py`` and ``eft_resize.py``
choose from that range.
"""
