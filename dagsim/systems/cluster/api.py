"""All that a policy may use of the GPU cluster: the contract of what the kernel shows it.

A policy imports this module and nothing else of the simulation; a test reads the imports. Everything here is live and
read-only: it shows the present, changes as decisions are carried out, and is changed by answering decisions alone.
Times are seconds since the start (float64), durations seconds, memory GB. A *type* is a place in
``ClusterView.gpu_types``, a *node* a place in ``Cluster.nodes``; jobs are numbered as they arrive, runs as they start.

**An instant.** Runs end first, then nodes come back and fail, then jobs arrive; then the policy is asked, again and
again until its answer is empty. A decision takes effect before the next one is asked for, so a generator sees it in the
line after its ``yield``. Nothing else happens during an answer, and time stands still.

**ClusterView**, what ``ClusterPolicy.decide`` is given: one object for the whole simulation.

- ``now``: the present. ``cluster``, ``gpu_types``: as configured; they never change.
- ``ready``: tasks with waiting instances, in the order they became ready. A task comes when its last parent is done or
  its job arrives, and when instances were preempted or failed; it goes when its last waiting instance starts.
- ``jobs``: jobs in the system by number, from their arrival (where asked for, their admission) until their last task is
  done, or ``Kill`` ends it. ``applicants``: those that wait for ``Admit`` or ``Reject``.
- ``running``: runs under way by id, in the order they started.
- ``machines``: free resources of each node (``ClusterState``). ``fits``, ``fit``: room for a task now.
- ``pending``: false if nothing will ever happen any more unless the policy acts; an empty answer then raises
  ``Stalled``.
- ``expected_free``: when GPUs are expected to be free, by estimates (``ExpectedFree``).
- ``preemption``: what a stopped run keeps of its work (``on_resume``), and what coming back costs.
- ``queue``, ``typed_queue``, ``index``, ``follow``: indexes that the kernel keeps up to date, see below.
- ``stream``: random numbers that are the same in every simulation with the same seed.
- ``queues``: accounts, partitions and limits as configured (``QueueTree``). ``claimed_s(task)``: the time limit that a
  user asked for.
- ``fork``: a copy of the simulation that knows no more than the view, to try decisions in.

**TaskState**, a task of a job in the system, and what ``Start`` takes.

- ``job``, ``index``, ``task``: its job (``JobState``), its place there, and what the user submitted.
- ``waiting``: instances that wait to be started, now. ``unfinished``: those that are not done. ``missing``: parents
  that are not done; 0 once it is ready.
- ``seconds[type]``: the estimate of what an instance still takes there, ``inf`` where it may not run; ``best_s`` is the
  min, ``rank_s`` the longest path from its start to the end of its job. They never change.
- ``ready_s``: when it became ready. ``order``: sorts first come, first served. ``demand``: what it asks for
  (``DemandClass``), shared by all tasks that ask for the same.
- ``piece``: 0, or the number of a preemption after which instances came back; such a piece is a ``TaskState`` of its
  own with the same ``job`` and ``index``, the fraction ``left`` of the work and ``restore_s`` seconds of set-up owed.
- ``truth``: what an instance really takes, by type. Only a policy whose class says ``clairvoyant = True`` may read it;
  for any other it raises ``IllegalDecision``.

**JobState**: ``job`` (the ``Job`` as submitted), ``number``, ``tasks`` (all of them, done or not), ``tasks_left`` (not
done), ``ideal_s`` (its estimated critical path as it arrived), ``service_gpu_s`` (GPU-seconds that its ended runs
held).

**Run**, one attempt of some instances of a task, between its start and its end.

- ``id``, ``task``, ``job``, ``instances``, ``type``, ``nodes``, ``gpus`` (held, a fraction where it shares one),
  ``started_s``: they never change.
- ``computing_s``: when it began to compute, ``None`` while it fetches its inputs or is set up (``setup_s`` seconds).
- ``estimate_s``: what it was estimated to compute. ``estimated_end_s(now)``: when to expect its end, never before
  ``now``.
- ``ends_s``, ``seconds``: the true end and length, for clairvoyant policies only, as ``task.truth``.

**ClusterState**, the free resources. ``list[node]`` is the ``NodeState`` of a node: ``idle`` GPUs, free ``cpus`` and
``memory`` in whole millionths (``MICRO``), ``shares`` (free millionths of each partly used GPU), ``up``, and
``room(demand)``, the instances it could take. ``fits_on(demand, type)``, ``idle_gpus(type)``, ``capacity(demand,
type)``, ``candidates(demand, type)`` answer from indexes, without a look at every node.

**Events.** ``view.index(key, make)`` makes an index once, keeps it with the simulation and calls those of these three
methods that it has:

- ``push(task)``: the task became ready, at its arrival or later, or instances of it came back as a further piece.
- ``started(run, now)``: the run has just started. Its nodes are taken and ``run.task.waiting`` is reduced.
- ``ended(run, now)``: the run has just finished, failed or been preempted. Its nodes are free and it is not in
  ``running`` any more. The consequences come later: its task may still count it as unfinished, and children and pieces
  are not pushed yet. Leave anything that depends on them to the next decision.

A new index first receives everything that is ready and everything that runs. Started tasks stay in an index until it
drops them (``waiting`` is 0). A policy without an index pays nothing.

An index may refer to tasks and runs, as a fork makes its own. A policy itself must be deep-copyable and keeps only
plain data; where that is a past which no view shows (the service a job has had), it says ``view.follow(listener)`` at
each decision, with itself or a part of it. The copy in a fork receives the runs there again, so ``started`` must
accept a run that it knows already.
"""

from dagsim.systems.cluster.nodes import MICRO, ClusterState, DemandClass, NodeState
from dagsim.systems.cluster.state import Index, JobState, Key, Queue, Run, RunIndex, TaskState, TypedKey, TypedQueue
from dagsim.systems.cluster.view import NEVER_S, ClusterPolicy, ClusterView, ExpectedFree, Simulation

__all__ = [
    "MICRO",
    "NEVER_S",
    "ClusterPolicy",
    "ClusterState",
    "ClusterView",
    "DemandClass",
    "ExpectedFree",
    "Index",
    "JobState",
    "Key",
    "NodeState",
    "Queue",
    "Run",
    "RunIndex",
    "Simulation",
    "TaskState",
    "TypedKey",
    "TypedQueue",
]
