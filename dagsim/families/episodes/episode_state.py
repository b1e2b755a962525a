"""The arrays of an episode: the state of the simulation, and the indexes from which observations
and rewards are read.

An episode is a simulation that stops wherever there is a choice (``play``). Everything that changes
during an episode is in arrays whose sizes never change. To start or fork an episode, it is
therefore enough to copy one block of bytes (``images``).
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dagsim.families.compiled.jit import by_pointer
from dagsim.families.compiled.list_scheduling import upward_rank
from dagsim.families.compiled.memory import ENTRY, State, new_state, one_record, record_type, records
from dagsim.families.compiled.reading import EngineScenario
from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.codecs.pool import STATIC, WIDTHS
from dagsim.model.log import ROW
from dagsim.systems.cluster.api import NEVER_S
from dagsim.workload.array_tools import distinct_rows

MOST_GPU_SECONDS = 2.0**42
"""Maximum of the GPU-seconds of all tasks, because sums are kept in whole units of 2**-20 in 64
bits."""

MOST_IN_FLIGHT = 1 << 20
"""Maximum number of instances that run at once, for all of which every episode has space."""

TALLY = record_type(
    f8="integral since_s rate charged_s arrived_s weight scale gpus never_s theta",
    i8="groups jobs choices pending waiting read heard recorded shaped relative kinds profiles ready proposed on order",
)
"""Single numbers.

- The reward: ``integral``, ``since_s``, ``rate`` and ``charged_s`` are those of
  ``cluster_rewards.Accrual``, ``arrived_s`` is that of ``critical_paths.CriticalPaths``.
  ``weight`` and ``scale`` are constants; ``shaped`` is 1 for ``shaped_job_seconds``, 0 for
  ``job_seconds``.
- Constants: ``gpus`` of the cluster; ``never_s`` is used for an end that is not expected.
- Counters: ``groups`` that have had a task, ``jobs`` in the system, current ``choices`` without
  the one to wait, and tasks ``waiting``. ``pending`` is 1 if waiting is a choice.
- For the codec ``relative`` (1): ``theta`` and ``order`` (``proposals``) of its reference, which
  would start ``proposed`` on a type now; ``kinds`` and ``profiles`` that have had a task;
  ``ready`` tasks.
- Rows of the log that were ``read``, and starts that were ``heard``, since they were last cleared.
  The log keeps its rows if ``recorded`` is 1; otherwise they are overwritten once they are read.
"""
FACT = record_type(
    f8="best_s least_s rank_s true_s true_rank_s wide", i8="group best_type width_class high low profile"
)
"""Constants of a task. ``least_s`` are the estimated seconds on the fastest type, ``best_s`` the
same but not 0, ``rank_s`` the estimated path from its start to the end of its job; ``true_s`` and
``true_rank_s`` are the true ones. ``wide`` is the number of GPUs that start together. ``high`` and
``low`` are the GPU-seconds on the fastest type, as an exact sum (``play.exact_sum``). ``profile``
is that of ``eft-wait``."""
GROUP = record_type(i8="kind at short last listed seen")
"""Tasks with the same demand class ``kind`` and the same ratios of seconds between types. Its two
heaps begin ``at`` this position and hold ``short`` and ``last`` entries. ``seen`` is 1 after its
first task became ready. ``listed`` is a separate list: the group at this position in the order of
first tasks."""
WIDTH = record_type(i8="at held")
"""The ready tasks in a width class: their position and number in ``sorted_s``."""
ON_TYPE = record_type(f8="gpus", i8="at held")
"""GPUs of a type (at least 1), and the position and number of its runs in ``expected``."""
EXPECTED = record_type(f8="end_s gpus", i8="slot")
"""A run by its expected end."""
IN_SYSTEM = record_type(f8="until_s ready_s left done_s wide_s work_s", i8="tasks_left stale")
"""A job. ``until_s`` and ``ready_s`` are as in its path in ``critical_paths.CriticalPaths``;
``left`` is the feature ``job_left``, computed when ``tasks_left`` tasks were left; ``done_s`` is
the completion. ``wide_s`` and ``work_s`` are its GPU-seconds left as ``eft-wait`` and ``srpt-work``
count them, unless they are ``stale``."""
LISTED = record_type(i8="kind listed seen")
"""A demand class or a profile, which has a ``kind``. ``seen`` and ``listed`` have the same meaning
as in ``GROUP``."""
HEADS = record_type(f8="key seconds", i8="first shortest")
"""The ``first`` ready task of a profile on a type (-1 if there is none) with its key, and the
``shortest`` task with its seconds."""


@by_pointer
class EpisodeState(NamedTuple):
    """The arrays of one episode."""

    state: State
    log: np.recarray  # ROW
    # Constants.
    facts: np.recarray  # (n,) FACT
    slowdown: np.ndarray  # (n, types) float64: log(seconds / seconds on the best type)
    slowdown_units: np.ndarray  # (n, types, 2) int64: these logarithms in fixed point, which can be summed exactly
    fixed: np.ndarray  # (n, types, 10) float32: the columns that do not change while a task waits
    ideal_s: np.ndarray  # (J,) float64: critical path of each job on arrival; 0 for jobs that can never run
    # Variables.
    tally: Any  # TALLY
    groups: np.recarray  # (groups,) GROUP
    short: np.recarray  # (n,) ENTRY: heaps of ready tasks, ordered by seconds on the fastest type
    last: np.recarray  # (n,) ENTRY: heaps of ready tasks, ordered by the remaining path of their job
    widths: np.recarray  # (width classes,) WIDTH
    sorted_s: np.ndarray  # (n,) float64: seconds of the ready tasks by width class, in ascending order
    sums: np.ndarray  # (width classes + 2 * types, 2) int64
    """Exact fixed-point sums, each as (high, low): GPU-seconds by width class, GPU-seconds by best
    type, and slowdowns by best type."""
    on_type: np.recarray  # (types,) ON_TYPE
    expected: np.recarray  # EXPECTED: current runs, by type and expected end
    ready_s: np.ndarray  # (n,) float64: when each task became ready
    jobs: np.recarray  # (J,) IN_SYSTEM
    in_system: np.ndarray  # (J,) int64: jobs in the system, in order of arrival
    choice: np.ndarray  # (2 * groups * types, 2) int64: task and type of each choice
    room: np.ndarray  # (K,) int64: bit set of the types on which a demand class fits; -1 if not yet known
    eta_s: np.ndarray  # (K, types) float64: seconds until a demand class fits on a type; -1 if not yet known
    shown: np.ndarray  # (types, 8) float32: the encoded row of each type.
    # Used only by the codec ``relative``.
    kinds: np.recarray  # (K,) LISTED
    profiles: np.recarray  # (profiles,) LISTED: tasks of a demand class with the same ratios of seconds
    heads: np.recarray  # (profiles, types) HEADS
    ready_tasks: np.ndarray  # (n,) int64: the ready tasks, in no particular order
    ready_at: np.ndarray  # (n,) int64: position of each task in ``ready_tasks``
    left_s: np.ndarray  # (n,) float64: the job's remaining GPU-seconds when the task became ready
    all_s: np.ndarray  # (n,) float64: seconds of all ready tasks on their fastest types, in ascending order
    exact: np.ndarray  # (types, 8) float64: the exact rows of the types
    works: np.ndarray  # (choices, 2) float64: remaining GPU-seconds and seconds of each choice
    ranked: np.ndarray  # (choices,) float64: scratch space for sorting the choices


class EpisodeCodec(NamedTuple):
    """The settings of an episode's codec that the engine needs."""

    placement: int
    relative: bool = False
    theta: float = 0.0
    """Threshold of the reference of ``relative``, which is ``eft-wait`` with the order ``work``."""


class EpisodeReward(NamedTuple):
    """The reward, which is the negative weighted cost, divided by a scale."""

    weight: float = 1.0
    scale: float = 1.0
    shaped: bool = True


def named_places(columns: Sequence[str]) -> Any:
    """Return a named tuple that contains the place of each column, which compiled code reads as a
    constant.
    """
    make: Any = namedtuple
    return make("Places", columns)(*range(len(columns)))


def too_large(scene: EngineScenario) -> str:
    """Return the reason why an episode would not fit into its arrays. The result is empty if it
    fits."""
    least_s, wide = scene.work.best_s, scene.classes.table.gpus * np.maximum(scene.classes.table.gang, 1)
    gpu_s = np.where(np.isinf(least_s), 0.0, least_s) * np.maximum(wide, 1.0)[scene.work.rows.kind]
    if gpu_s.sum() >= MOST_GPU_SECONDS:
        return f"episodes of {MOST_GPU_SECONDS:.0e} GPU-seconds or more are not compiled"
    if (most := most_in_flight(scene)[0]) > MOST_IN_FLIGHT:
        return f"episodes with more than {MOST_IN_FLIGHT:,} instances at once are not compiled, got {most:,}"
    return ""


def most_in_flight(scene: EngineScenario) -> tuple[int, np.ndarray]:
    """Return an upper bound on the number of instances that can run at the same time, and the bound
    for each type, (types,) int64.
    """
    instances = int(scene.work.rows.instances.sum())
    asked, nodes = scene.classes.table.gpus, scene.nodes.table
    least = float(asked.min()) if len(asked) else 0.0
    gpus = np.bincount(nodes.type, nodes.gpus, len(scene.nodes.per_type))
    by_type = np.full(len(gpus), instances)
    if least > 0:
        by_type = np.minimum(by_type, np.ceil(gpus / least).astype(np.int64))
    return min(instances, int(by_type.sum())), by_type


def new_episode(scene: EngineScenario, codec: EpisodeCodec, terms: EpisodeReward, log: np.recarray) -> EpisodeState:
    """Build the state of an episode before its first event. ``play.prepare`` must be called next."""
    work, classes = scene.work, scene.classes
    tasks, types = work.seconds.shape
    jobs = len(work.jobs.arrival_s)
    at_once, by_type = most_in_flight(scene)
    state = _cut(new_state(work, classes, scene.nodes, np.zeros((tasks, 1)), codec.placement), at_once + 1)
    facts, kinds, of_kind = _facts(scene, codec)
    waiting, profiles, in_class = (tasks, len(of_kind), len(classes.table)) if codec.relative else (0, 0, 0)
    choices = 2 * len(kinds) * types + 2 * types
    in_group = np.bincount(facts.group, minlength=len(kinds))
    in_width = np.bincount(facts.width_class, minlength=len(WIDTHS) + 1)
    ideal_s = np.maximum.reduceat(facts.true_rank_s, work.jobs.first[:-1]) if tasks else np.zeros(0)
    by_gpu = np.maximum(np.bincount(scene.nodes.table.type, scene.nodes.table.gpus, types), 1.0)
    return EpisodeState(
        state=state,
        log=log,
        facts=facts,
        slowdown=np.zeros((tasks, types)),
        slowdown_units=np.zeros((tasks, types, 2), np.int64),
        fixed=np.zeros((tasks, types, 1 + len(STATIC)), np.float32),
        ideal_s=np.where(np.isinf(ideal_s), 0.0, ideal_s),
        tally=one_record(
            TALLY,
            weight=terms.weight,
            scale=terms.scale,
            shaped=terms.shaped,
            gpus=float(by_gpu.sum()),
            never_s=inf if codec.relative else NEVER_S,
            relative=codec.relative,
            theta=codec.theta,
        ),
        groups=records(GROUP, len(kinds), kind=kinds, at=np.cumsum(in_group) - in_group),
        short=records(ENTRY, tasks, key=[]),
        last=records(ENTRY, tasks, key=[]),
        widths=records(WIDTH, len(in_width), at=np.cumsum(in_width) - in_width),
        sorted_s=np.zeros(tasks),
        sums=np.zeros((len(in_width) + 2 * types, 2), np.int64),
        on_type=records(ON_TYPE, types, gpus=by_gpu, at=np.cumsum(by_type) - by_type),
        expected=records(EXPECTED, int(by_type.sum()), slot=[]),
        ready_s=np.zeros(tasks),
        jobs=records(IN_SYSTEM, jobs, done_s=np.full(jobs, np.nan), tasks_left=np.full(jobs, -1), stale=np.ones(jobs)),
        in_system=np.zeros(jobs, np.int64),
        choice=np.zeros((choices, 2), np.int64),
        room=np.zeros(len(classes.table), np.int64),
        eta_s=np.zeros((len(classes.table), types)),
        shown=np.zeros((types, len(Candidates.gpu_features)), np.float32),
        kinds=records(LISTED, in_class, kind=[]),
        profiles=records(LISTED, profiles, kind=of_kind[:profiles]),
        heads=records(HEADS, profiles * types, first=[]).reshape(profiles, types).view(np.recarray),
        ready_tasks=np.zeros(waiting, np.int64),
        ready_at=np.zeros(waiting, np.int64),
        left_s=np.zeros(waiting),
        all_s=np.zeros(waiting),
        exact=np.zeros((types, len(Candidates.gpu_features))),
        works=np.zeros((choices if codec.relative else 0, 2)),
        ranked=np.zeros(choices if codec.relative else 0),
    )


def _facts(scene: EngineScenario, codec: EpisodeCodec) -> tuple[np.recarray, np.ndarray, np.ndarray]:
    """Return the constants of all tasks, (n,) FACT, and the demand classes of their groups and of
    their profiles. Only the codec ``relative`` has profiles."""
    work, table = scene.work, scene.classes.table
    tasks, kind = len(work.seconds), work.rows.kind
    gpus = table.gpus * np.maximum(table.gang, 1)
    wide = np.where(gpus, gpus, 1.0)[kind]
    least_s = work.best_s
    best_s = np.where(least_s, least_s, 1e-9)
    group, kinds = _groups(kind, work.seconds, best_s, 6)
    profile, of_kind = np.zeros(tasks, np.int64), np.zeros(0, np.int64)
    if codec.relative:
        profile, of_kind = _groups(kind, work.seconds, least_s, 9)
    true_s, rank_s = least_s, upward_rank(work, least_s)
    true_rank_s = rank_s
    if work.truth is not work.seconds:
        true_s = work._replace(seconds=work.truth).best_s
        true_rank_s = upward_rank(work, true_s)
    facts = records(
        FACT,
        tasks,
        best_s=best_s,
        least_s=least_s,
        rank_s=rank_s,
        true_s=true_s,
        true_rank_s=true_rank_s,
        wide=wide,
        group=group,
        best_type=work.seconds.argmin(axis=1) if tasks else [],
        width_class=np.searchsorted(WIDTHS, wide),
        profile=profile,
    )
    return facts, kinds, of_kind


def scratch(nodes: int) -> np.recarray:
    """Return a log with space for only a few rows, for episodes that do not keep their logs. All
    episodes in a thread can share it.
    """
    return np.zeros(max(1024, 4 * nodes), ROW).view(np.recarray)


def whole_log_of(scene: EngineScenario) -> np.recarray:
    """Return a log with space for all rows of an episode."""
    rows = 2 * scene.jobs + 2 * int(scene.work.rows.instances.sum()) + len(scene.nodes.table) + 2
    return np.zeros(rows, ROW).view(np.recarray)


_RING = 256
"""Number of node changes that are remembered; small, because each episode has its own ring."""


def _cut(s: State, runs: int) -> State:
    """Shrink the arrays to the space that ``runs`` runs need, with one entry in ``holds`` each."""
    lengths = dict.fromkeys(("ends", "runs", "holds", "ended", "starts"), runs) | {"ring": _RING}
    return s._replace(**{name: _resized(getattr(s, name), length) for name, length in lengths.items()})


def _resized(array: Any, rows: int) -> Any:
    return np.zeros(rows, array.dtype).view(type(array))


def _groups(kind: np.ndarray, seconds: np.ndarray, best_s: np.ndarray, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each task, (n,) int64, and the demand class of each group. The tasks in a
    group have the same demand class, and the same ratios of seconds to ``best_s``.

    As in the codec, ratios are rounded one by one in Python, because NumPy's rounding may differ in
    the last digit.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        # The ratio is NaN for a task that cannot run anywhere. Its job is rejected.
        ratios = seconds / best_s[:, None]
    distinct, place = np.unique(ratios, return_inverse=True)
    rounded = np.array([round(ratio, digits) for ratio in distinct.tolist()])
    number = np.unique(rounded, return_inverse=True)[1][place].reshape(ratios.shape)
    profiles, group = distinct_rows(np.column_stack([kind, number]))
    return group, profiles[:, 0].astype(np.int64)
