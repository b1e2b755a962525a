"""Kueue: admission by quota, implemented as an engine without a clock and as a policy that runs in
simulated time.

``manifests`` reads Kueue's objects (``objects``), ``site`` imports the site that they describe, and
``changes`` applies changed objects to that site. ``engine`` admits workloads, and ``kueue_policy``
calls it as simulated time passes.
"""
