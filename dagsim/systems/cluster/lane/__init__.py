"""The compiled engine ("lane"): the SimPy kernel's rules a second time, over columns, for large
plain scenarios.

ARCHITECTURE.md describes the rules, and the SimPy kernel defines them. Both engines write the same
log to the last byte; ``scripts/check_lane.py`` compares them on random scenarios. What the lane
cannot play is left to the kernel, and ``systems.cluster.choice`` gives the reason.

**The files**, in reading order:

- ``state``: every record and array. ``Work``, ``Classes`` and ``EmptyNodes`` come in and never
  change; ``State`` is all that a simulation changes. A task is a row number, and so are jobs, runs,
  nodes and demand classes.
- ``reading``: jobs, cluster and models to columns. ``orders``: a policy's own key, asked of all
  tasks at once.
- ``placement``: which node is next. ``kernel``: an end, an arrival, a start. ``heap``: binary
  heaps.
- One loop per family of policies, with its queues: ``orders`` (list scheduling), ``job_orders``,
  ``easy``, ``srtf``, ``las``. Each names its twin, the policy that it copies.
- ``drive``: chooses the loop, calls it, and gives it space. ``jit`` and ``pointers``: how numba
  compiles all this.

**The life of a task.** It stands in ``State.tasks`` and ``State.todo`` from the start, with the
number of parents that are not done. When its job arrives, or its last parent ends, ``kernel`` puts
it into ``State.fresh``. The loop of the policy takes it from there into its own queue, finds it
room with ``placement.choose``, and starts it with ``kernel.start``: a slot in ``State.runs``, a
hold per node, an entry in the heap ``State.ends``, a row in the log. When the run ends, its slot
goes into ``State.ended`` for the policy to see. A preempted run comes back as a *piece*: one more
row behind those of the tasks, with the work that is left.

**The loop.** ``advance_*`` does one thing per turn: an end, an arrival, or one decision. All of its
state is in the arrays, so that it can stop at any turn and go on: when the log is full, or when an
array has to grow (``with_more_room``).

**Finding a node.** There is one *tournament tree* per demand class and GPU type. Its leaves are the
scores of the type's nodes, smaller is better, and each inner place holds the smaller of the two
below. The root is the best score. A tree is brought up to date when it is asked: it replays the
nodes that have changed since, from a ring of the last changes, O(log nodes) each, so that nothing
ever scans the cluster.

**Without numba**, or with ``NUMBA_DISABLE_JIT=1``, the same text runs as plain Python, which checks
the compiled code.
"""
