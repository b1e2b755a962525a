"""The API for policies on the GPU cluster: everything that the kernel shows to a policy.

This is the only module of the simulation that a policy imports. A test checks this. All objects
here are live and read-only: they show the current state, which changes as decisions are carried
out, and only decisions can change it. Times are in seconds since the start (float64), durations in
seconds, and memory in GB. A *type* is an index into ``ClusterView.gpu_types``, a *node* an index
into ``Cluster.nodes``. Jobs are numbered in order of arrival, and runs in order of their starts.

**Order of simultaneous events.** First, runs end; then nodes come back and others fail; then jobs
arrive. After that, the policy is called repeatedly until it returns no decisions. Each decision is
carried out before the next one is requested, so a generator sees the effect when it continues after
its ``yield``. Nothing else happens while the policy decides, and simulated time stands still.

**ClusterView** is the argument of ``ClusterPolicy.decide``: one object for the whole simulation.

- ``now``: the current time. ``cluster``, ``gpu_types``: as configured; these never change.
- ``ready``: tasks with waiting instances, in the order in which they became ready. A task is added
  when its last parent is done or its job arrives, and when some of its instances were preempted or
  failed. It is removed when its last waiting instance starts.
- ``jobs``: jobs in the system by number, from their arrival (or their admission, with admission
  control) until their last task is done or ``Kill`` ends them. ``applicants``: jobs waiting for
  ``Admit`` or ``Reject``.
- ``running``: current runs by id, in the order in which they started.
- ``machines``: free resources of each node (``ClusterState``). ``fits``, ``fit``: whether and where
  a task fits now.
- ``pending``: false if nothing will happen unless the policy acts. Returning no decisions then
  raises ``Stalled``.
- ``expected_free``: when GPUs are expected to become free, according to estimates
  (``ExpectedFree``).
- ``preemption``: how much of its work a stopped run keeps (``on_resume``), and the cost of resuming
  it.
- ``sharing``: the model that gives the rates of two tasks on the same GPUs (``Sharing.pair``), or
  ``None`` if ``Join`` is not available.
- ``queue``, ``typed_queue``, ``index``, ``follow``: indexes that the kernel keeps up to date (see
  below).
- ``stream``: random numbers that are identical in all simulations with the same seed.
- ``queues``: accounts, partitions and limits as configured (``QueueTree``). ``requested_s(task)``:
  the time limit requested by the user.
- ``fork``: a copy of the simulation in which decisions can be tried out. The copy reveals no more
  than the view does.

**TaskState** is a task of a job in the system, and the argument of ``Start``.

- ``job``, ``index``, ``task``: its job (``JobState``), its index in that job, and the ``Task`` as
  submitted.
- ``waiting``: number of instances waiting to be started. ``unfinished``: number of instances that
  are not done yet. ``missing``: number of unfinished parents; 0 once the task is ready.
- ``seconds[type]``: the estimated remaining seconds of an instance on that type, or ``inf`` if it
  may not run there. ``best_s`` is the minimum of these, and ``rank_s`` the longest path from the
  start of the task to the end of its job. They never change.
- ``ready_s``: the time at which it became ready. ``order``: sort key for first come, first served.
  ``demand``: the resources that it needs (``DemandClass``), shared by all tasks with equal demands.
- ``piece``: 0 for a task as submitted. Instances that return after a preemption or failure form a
  new piece; pieces are numbered from 1 over the whole simulation. Such a piece is a separate
  ``TaskState`` with the same ``job`` and ``index``. ``left`` is the fraction of the work that
  remains, and ``restore_s`` is the set-up time in seconds before it can compute.
- ``training``: the progress of an elastic task (``TrainingState``), ``None`` for others. A policy
  may use a copy of this object to find the rate of the task on other placements.
- ``truth``: the true seconds of an instance, by type. Only a policy with ``clairvoyant = True`` in
  its class may read it. For any other policy, reading it raises ``IllegalDecision``.

**JobState** has ``job`` (the ``Job`` as submitted), ``number``, ``tasks`` (all of them, done or
not), ``tasks_left`` (number not done), ``ideal_s`` (its estimated critical path on arrival) and
``service_gpu_s`` (GPU-seconds held by its completed runs).

**Run** is one attempt to execute some instances of a task, from its start to its end.

- ``id``, ``task``, ``job``, ``instances``, ``type``, ``nodes``, ``gpus`` (held; a fraction if it
  shares one), ``started_s``: these never change.
- ``rate``: its current rate, which is 1 unless the run shares GPUs (with the runs in ``beside``) or
  is elastic. ``work_left_s(now)``: the estimated remaining seconds at rate 1. ``done(now)``: the
  work done or, for an elastic task, its progress (``training.progress`` is the progress at the last
  change of its rate).
- ``computing_s``: when it began to compute; ``None`` while it fetches inputs or is being set up
  (``setup_s`` seconds).
- ``estimate_s``: its estimated compute time. ``estimated_end_s(now)``: its expected end, never
  before ``now``.
- ``ends_s``, ``seconds``: the true end and length; only for clairvoyant policies, like
  ``task.truth``.

**ClusterState** contains the free resources. ``list[node]`` is the ``NodeState`` of a node, with
its ``idle`` GPUs, free ``cpus`` and ``memory`` in whole millionths (``MICRO``), ``shares`` (free
millionths of each partly used GPU), ``up``, and ``room(demand)``, the number of instances that fit
on the node now. ``fits_on(demand, type)``, ``idle_gpus(type)``, ``capacity(demand, type)`` and
``candidates(demand, type)`` use indexes, so they do not loop over all nodes.

**Events.** ``view.index(key, make)`` creates an index once and stores it with the simulation. The
kernel then calls whichever of these methods the index defines:

- ``push(task)``: the task became ready, on arrival or later, or some of its instances returned as a
  new piece.
- ``rated(run, now)``: the run continues at a new rate.
- ``started(run, now)``: the run has just started. Its nodes are already occupied, and
  ``run.task.waiting`` is already reduced.
- ``ended(run, now)``: the run has just finished, failed or been preempted. Its nodes are already
  free, and it is no longer in ``running``. The consequences follow later: the task may still count
  the run's instances as unfinished, and children and new pieces have not been pushed yet. Whatever
  depends on these has to wait for the next decision.

A new index first receives all ready tasks and all runs. Started tasks stay in an index until the
index drops them (``waiting`` is 0). A policy without an index causes no overhead.

An index may refer to tasks and runs, because a fork creates its own index. A policy itself must be
deep-copyable and keep only plain data. A policy may need information about the past that no view
shows, such as how much service a job has received. It then calls ``view.follow(listener)`` at each
decision. The listener is the policy itself or a part of it. In a fork, the copy of the listener
receives the runs again, so ``started`` must accept a run that it has already seen.

**The past.** A simulation may begin in the middle of a log or from a snapshot. Indexes and
listeners that are created at the first decision then receive the past: tasks that became ready, and
runs that started, ended or were stopped. These events come in their original order and with their
original times. Some listeners store information about finished jobs. Such a listener states this in
an attribute ``remembers`` (``"usage by account and user"``), and also receives the events of
finished jobs if they are known. If they are unknown, a note above the results states this. If a
policy stores something between decisions that no log contains (``"when the last backfill cycle
began"``), it states this in an attribute ``forgets``. If the past is completely known, a copy of
the policy first simulates it. If the copy makes exactly the decisions of the past, the policy takes
over what the copy remembers, and its listeners receive only the events at the beginning. Otherwise,
the text of ``forgets`` is printed above the results. A policy sets ``rehearses = False`` if an
index contains part of this memory, because an index cannot be taken over.
"""

from dagsim.systems.cluster.frontier import Index, Key, Queue, RunIndex, TypedKey, TypedQueue
from dagsim.systems.cluster.models.shared_gpus import Sharing
from dagsim.systems.cluster.past.from_log import nodes_by_name, placement_on
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.resources.nodes import ALL, MICRO, DemandClass, NodeState, may_mix_types
from dagsim.systems.cluster.resources.site import SiteState, Terms, members
from dagsim.systems.cluster.state import JobState, Run, TaskState
from dagsim.systems.cluster.view import NEVER_S, ClusterPolicy, ClusterView, ExpectedFree, Simulation
from dagsim.systems.cluster.waits.wait_rules import Excess, NextStep, ReachedLimit, Standing, WaitRules
from dagsim.systems.seam import stated

__all__ = [
    "ALL",
    "MICRO",
    "NEVER_S",
    "ClusterPolicy",
    "ClusterState",
    "ClusterView",
    "DemandClass",
    "Excess",
    "ExpectedFree",
    "Index",
    "JobState",
    "Key",
    "NextStep",
    "NodeState",
    "Queue",
    "ReachedLimit",
    "Run",
    "RunIndex",
    "Sharing",
    "Simulation",
    "SiteState",
    "Standing",
    "TaskState",
    "Terms",
    "TypedKey",
    "TypedQueue",
    "WaitRules",
    "may_mix_types",
    "members",
    "nodes_by_name",
    "placement_on",
    "stated",
]
