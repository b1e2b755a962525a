"""Elastic jobs: training on a number of GPUs and with a batch size that the scheduler chooses.

``goodput.py`` models how fast a job learns, ``profiles.py`` reads measured applications, and
``training_jobs.py`` combines both into a job with progress. ``stepping.py`` runs such jobs as
Pollux's simulator does, under the policies of ``pollux_policies.py`` and Pollux's own search in
``genetic.py``. ``sia.py`` is the integer program of Sia. ``tasks.py`` gives tasks of any workload a
range of GPUs, and the policies of ``resizing.py`` choose among them.
"""
