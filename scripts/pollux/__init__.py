"""Pollux's simulator as published, with the policies that its authors compare with, in its own loop and on the kernel
(``validate_pollux.py``).

As published (Qiao et al., OSDI 2021, artifact): times are whole seconds, an arrival is noticed at the next interval,
and every change of a job's nodes costs 30 s during which it holds its GPUs.
"""
