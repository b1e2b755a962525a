"""Kubernetes objects, as the API server states them: quantities and selectors (``terms``), the objects
that affect how pods are scheduled (``cluster_objects``), and pods (``pods``). The rest of the family
is built on this folder."""
