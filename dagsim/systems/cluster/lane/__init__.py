"""The compiled lane: the SimPy kernel's rules once more, over columns, for scenarios that are large and plain.

ARCHITECTURE describes the rules; the SimPy kernel is the definition, and this is a second execution of it. Both write
the same log to the last byte (``scripts/check_lane.py`` compares them on random scenarios), or the lane steps aside and
``choice`` says why.

- Everything is an array of records (``state``): no objects, no references. ``columns`` are what comes in.
- A policy is a column of keys (``orders``), smaller first.
- A placement is a score of a node (``index``), smaller first.
- Finding a node is the root of a *tournament tree*. There is one per demand class and GPU type: leaves are the scores
  of the type's nodes, every inner place holds the smaller of the two below. What has changed since a tree was last
  asked is replayed from a ring of the last changes, O(log nodes) each, so that nothing ever scans the cluster.
- ``advance`` does one thing per turn (an end, an arrival, a start) and keeps everything in the state, so that it can
  stop anywhere and go on: when the log is full, or when the state has to grow.
- With numba (``pip install -e '.[fast]'``) the functions are compiled; without it, or with ``NUMBA_DISABLE_JIT=1``,
  the same text runs as plain Python and is the compiled one's own check.
"""
