"""The compiled engine: a second implementation of the rules of the SimPy kernel. It works on
columns, and is meant for large scenarios without special features.

docs/inside.md describes the rules, and the SimPy kernel defines them. Both engines write the same
log, byte for byte. ``scripts/check_engine.py`` checks this on random scenarios. The kernel runs
every scenario that the engine does not support, and ``choice`` states the reason.

**The files**, in reading order:

- ``memory``: every record and array. ``Work``, ``Classes`` and ``EmptyNodes`` are inputs that never
  change. ``State`` contains everything that changes during a simulation. Tasks, jobs, runs, nodes
  and demand classes are identified by row numbers.
- ``reading``: converts jobs, cluster and models to columns.
- ``node_trees``: finds the next node. ``rules``: completions, arrivals, starts, and binary heaps.
- One loop per kind of policy, with its queues: ``list_scheduling``, ``longest_wait``, ``mapping``,
  ``job_keys``, ``easy``, ``srtf``, ``las``. Each file names the Python policy that it reproduces.
- ``policies.formulas``: computations that a policy and its loop share.
- ``drive``: chooses the loop, calls it, and enlarges its arrays. ``jit`` and ``pointers``: compile
  all of this with numba; ``warming`` does so ahead of time.

The family ``episodes`` uses the same rules for policies outside the engine, which make one decision
per step.

**The life of a task.** From the beginning, a task has a row in ``State.tasks``, and a row in
``State.todo`` with the number of its unfinished parents. When its job arrives, or its last parent
ends, ``rules`` puts it into ``State.fresh``. The policy's loop moves the task from there into the
policy's queue, finds a node for it with ``node_trees.choose``, and starts it with ``rules.start``.
This creates a slot in ``State.runs``, a hold for each node, an entry in the heap ``State.ends``,
and a row in the log. When the run ends, ``rules`` puts its slot into ``State.ended`` for the
policy. The rest of a preempted run becomes a *piece*, which is an additional row with the remaining
work. Rows of pieces follow the rows of all tasks.

**The loop.** ``advance_*`` handles one event per turn: a completion, an arrival, or a decision. All
of its state is in the arrays. It can therefore stop after any turn, when the log is full or an
array has to grow (``with_more_room``), and continue later.

**Finding a node.** There is one *tournament tree* per demand class and GPU type. The leaves of a
tree are the scores of the type's nodes (smaller is better), and each inner position contains the
smaller of the two scores below it. The root is the best score. A tree is updated only when it is
queried. It then applies the latest changes to nodes, which are stored in a ring buffer, at a cost
of O(log nodes) per change. So no operation ever scans the whole cluster.

**Without numba**, or with ``NUMBA_DISABLE_JIT=1``, the same code runs as plain Python, which is a
check of the compiled code.
"""
