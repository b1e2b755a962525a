"""Kueue: admission by quota, implemented as an engine without a clock and as a policy that runs in
simulated time.

``manifests`` reads Kueue's objects (``kueue_objects``), ``kueue_site`` imports the site that they
describe, and ``changes`` applies changed objects to that site. ``engine`` admits workloads, and
``kueue_policy`` calls it as simulated time passes. ``kueue_manager`` runs Kueue's real manager, for
which ``written_manifests`` writes the objects.
"""
