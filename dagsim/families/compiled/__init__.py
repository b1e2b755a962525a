"""The compiled engine: a second implementation of the SimPy kernel's rules, over columns, for large
scenarios without special features.

ARCHITECTURE.md describes the rules, and the SimPy kernel defines them. Both engines write the same
log, byte for byte; ``scripts/check_engine.py`` compares them on random scenarios. The kernel runs
everything that the engine does not support, and ``choice`` gives the reason.

**The files**, in reading order:

- ``memory``: every record and array. ``Work``, ``Classes`` and ``EmptyNodes`` are inputs that never
  change; ``State`` contains everything that a simulation changes. Tasks, jobs, runs, nodes and
  demand classes are row numbers.
- ``reading``: converts jobs, cluster and models to columns.
- ``node_trees``: finds the next node. ``rules``: completions, arrivals, starts, and binary heaps.
- One loop per kind of policy, with its queues: ``list_scheduling``, ``longest_wait``, ``mapping``,
  ``job_keys``, ``easy``, ``srtf``, ``las``. Each file names its twin, which is the policy that it
  reproduces.
- ``policies.formulas``: computations shared by a policy and its loop, written once for both.
- ``drive``: chooses the loop, calls it, and enlarges its arrays. ``jit`` and ``pointers``: compile
  all of this with numba; ``warming`` does so ahead of time.

The family ``episodes`` runs policies that decide step by step under the same rules.

**The life of a task.** From the beginning a task has a row in ``State.tasks`` and in
``State.todo``, with the number of unfinished parents. When its job arrives, or its last parent
ends, ``rules`` puts it into ``State.fresh``. The loop of the policy moves it from there into the
policy's queue, finds a node for it with ``node_trees.choose``, and starts it with ``rules.start``:
this creates a slot in ``State.runs``, a hold per node, an entry in the heap ``State.ends``, and a
row in the log. When the run ends, its slot goes into ``State.ended``, where the policy finds it. A
preempted run comes back as a *piece*: another row, after the rows of all tasks, with the remaining
work.

**The loop.** ``advance_*`` does one thing per turn: a completion, an arrival, or one decision. All
of its state is in the arrays, so it can stop at any turn and continue later: when the log is full,
or when an array has to grow (``with_more_room``).

**Finding a node.** There is one *tournament tree* per demand class and GPU type. Its leaves are the
scores of the type's nodes (smaller is better), and each inner position contains the smaller of the
two scores below it. The root is the best score. A tree is updated when it is queried: it applies
the latest changes to nodes, which are kept in a ring buffer, and each change costs O(log nodes). No
operation therefore ever scans the whole cluster.

**Without numba**, or with ``NUMBA_DISABLE_JIT=1``, the same code runs as plain Python, which serves
as a check of the compiled code.
"""
