"""The API for policies on the GPU cluster: everything that the kernel shows to a policy.

A policy imports this module and nothing else of the simulation; a test checks the imports. All
objects here are live and read-only: they show the current state, which changes as decisions are
carried out, and can be changed only by decisions. Times are seconds since the start (float64),
durations seconds, memory GB. A *type* is an index into ``ClusterView.gpu_types``, a *node* an index
into ``Cluster.nodes``. Jobs are numbered as they arrive, runs as they start.

**One point in time.** Runs end first, then nodes come back and fail, then jobs arrive. Then the
policy is asked repeatedly until its answer is empty. A decision takes effect before the next one is
asked for, so a generator sees the effect when it continues after its ``yield``. Nothing else
happens during an answer, and time stands still.

**ClusterView**, the argument of ``ClusterPolicy.decide``: one object for the whole simulation.

- ``now``: the present. ``cluster``, ``gpu_types``: as configured; they never change.
- ``ready``: tasks with waiting instances, in the order in which they became ready. A task is added
  when its last
  parent is done or its job arrives, and when instances were preempted or failed. It is removed when its
  last waiting instance starts.
- ``jobs``: jobs in the system by number, from their arrival (with admission control, their admission)
  until their last task is done, or ``Kill`` ends them. ``applicants``: jobs that wait for ``Admit`` or
  ``Reject``.
- ``running``: runs under way by id, in the order they started.
- ``machines``: free resources of each node (``ClusterState``). ``fits``, ``fit``: whether and where
  a task fits now.
- ``pending``: false if nothing will happen unless the policy acts; an empty answer then raises
  ``Stalled``.
- ``expected_free``: when GPUs are expected to be free, by estimates (``ExpectedFree``).
- ``preemption``: how much of its work a stopped run keeps (``on_resume``), and the cost of resuming.
- ``sharing``: the rates of two tasks on the same GPUs (``Sharing.pair``), ``None`` without ``Join``.
- ``queue``, ``typed_queue``, ``index``, ``follow``: indexes that the kernel keeps up to date (see
  below).
- ``stream``: random numbers that are the same in every simulation with the same seed.
- ``queues``: accounts, partitions and limits as configured (``QueueTree``). ``requested_s(task)``: the
  time limit that the user requested.
- ``fork``: a copy of the simulation for trying decisions, with no more information than the view.

**TaskState**, a task of a job in the system, and the argument of ``Start``.

- ``job``, ``index``, ``task``: its job (``JobState``), its index there, and the ``Task`` as submitted.
- ``waiting``: instances that wait to be started, now. ``unfinished``: instances that are not done.
  ``missing``: parents that are not done; 0 once the task is ready.
- ``seconds[type]``: the estimated remaining seconds of an instance on that type, ``inf`` where it may
  not run. ``best_s`` is the minimum, ``rank_s`` the longest path from its start to the end of its job.
  They never change.
- ``ready_s``: when it became ready. ``order``: sorts first come, first served. ``demand``: the resources
  it needs (``DemandClass``), shared by all tasks with equal demands.
- ``piece``: 0, or the number of the preemption after which its instances came back. Such a piece is
  a separate ``TaskState`` with the same ``job`` and ``index``, the fraction ``left`` of the work,
  and ``restore_s`` seconds of set-up still to pay.
- ``training``: the progress of an elastic task (``TrainingState``), ``None`` for others. A policy
  may ask a copy of it for the pace at other placements.
- ``truth``: the true seconds of an instance, by type. Only a policy with ``clairvoyant = True`` in its
  class may read it; for any other it raises ``IllegalDecision``.

**JobState**: ``job`` (the ``Job`` as submitted), ``number``, ``tasks`` (all of them, done or not),
``tasks_left`` (not done), ``ideal_s`` (its estimated critical path on arrival), ``service_gpu_s``
(GPU-seconds held by its ended runs).

**Run**, one attempt of some instances of a task, between its start and its end.

- ``id``, ``task``, ``job``, ``instances``, ``type``, ``nodes``, ``gpus`` (held, a fraction if it shares
  one), ``started_s``: they never change.
- ``rate``: its current rate, which is 1 unless it shares GPUs (``beside``: the other runs) or is
  elastic.
  ``work_left_s(now)``: the estimated remaining seconds at rate 1. ``done(now)``: the work done, for
  an elastic task its progress (``training.progress`` is that at the last change of its rate).
- ``computing_s``: when it began to compute, ``None`` while it fetches its inputs or is set up
  (``setup_s`` seconds).
- ``estimate_s``: its estimated computing time. ``estimated_end_s(now)``: its expected end, never before
  ``now``.
- ``ends_s``, ``seconds``: the true end and length, for clairvoyant policies only, like ``task.truth``.

**ClusterState**, the free resources. ``list[node]`` is the ``NodeState`` of a node: ``idle`` GPUs,
free ``cpus`` and ``memory`` in whole millionths (``MICRO``), ``shares`` (free millionths of each
partly used GPU), ``up``, and ``room(demand)``, the number of instances it could take.
``fits_on(demand, type)``, ``idle_gpus(type)``, ``capacity(demand, type)``, ``candidates(demand,
type)`` are answered from indexes, without a loop over all nodes.

**Events.** ``view.index(key, make)`` makes an index once, stores it with the simulation and calls
those of the following methods that it has:

- ``push(task)``: the task became ready, at its arrival or later, or instances of it came back as a
  new piece.
- ``rated(run, now)``: the run continues at another rate.
- ``started(run, now)``: the run has just started. Its nodes are taken and ``run.task.waiting`` is reduced.
- ``ended(run, now)``: the run has just finished, failed or been preempted. Its nodes are free and it is
  no longer in ``running``. The consequences come later: its task may still count it as unfinished, and
  children and pieces are not pushed yet. Anything that depends on them has to wait for the next
  decision.

A new index first receives all ready tasks and all runs. Started tasks stay in an index until it
drops them (``waiting`` is 0). A policy without an index pays nothing.

An index may refer to tasks and runs, because a fork makes its own. A policy itself must be
deep-copyable and keep only plain data. If it needs information about the past that no view shows
(such as the service that a job has received), it calls ``view.follow(listener)`` at each decision,
with itself or a part of it. The copy in a fork receives the runs there again, so ``started`` must
accept a run that it has already seen.

**A past.** A simulation may begin in the middle of a log or from a snapshot. Indexes and listeners
that are made at its first decision are told of the past, in order and with its times: tasks that
became ready, runs that started, ended or were stopped. A listener whose attribute ``remembers``
says what it stores about finished jobs (``"usage by account and user"``) also is told of those, if
they are known; if not, results say so. If a policy stores something between decisions that no log
contains (``"how many random numbers had been drawn"``), it states this in an attribute ``forgets``,
which is printed above the results of such a run.
"""

from dagsim.systems.cluster.models.shared_gpus import Sharing
from dagsim.systems.cluster.nodes import MICRO, ClusterState, DemandClass, NodeState
from dagsim.systems.cluster.past import nodes_by_name, placement_on
from dagsim.systems.cluster.site import SiteState, Terms, members
from dagsim.systems.cluster.state import Index, JobState, Key, Queue, Run, RunIndex, TaskState, TypedKey, TypedQueue
from dagsim.systems.cluster.view import NEVER_S, ClusterPolicy, ClusterView, ExpectedFree, Simulation
from dagsim.systems.cluster.waits import Outcome, ReachedLimit, Standing

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
    "Outcome",
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
    "members",
    "nodes_by_name",
    "placement_on",
]
