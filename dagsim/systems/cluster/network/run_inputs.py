"""The flows that a run reads over the network before it computes: the outputs of parents, data, and
the state of an earlier run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagsim.model import Task, TaskGraph
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.network.base import Flow, Storage


def output_flows(
    graph: TaskGraph, task: int, here: Sequence[tuple[int, int]], places: Mapping[int, Mapping[int, int]]
) -> list[Flow]:
    """Return the flows that carry the outputs of a task's parents. The output of each parent comes
    from the nodes where the parent's instances ran, in proportion to their number there.

    ``here`` contains the nodes of the run and the number of its instances on each. ``places`` contains
    the same for every finished task of the job.
    """
    share_here = {node: count / graph.tasks[task].instances for node, count in here}
    flows = []
    for edge in graph.edges:
        if edge.child == task and edge.bytes:
            instances = graph.tasks[edge.parent].instances
            for source, count in places[edge.parent].items():
                for node, part in share_here.items():
                    if node != source:
                        flows.append(Flow(source, node, edge.bytes * part * count / instances))
    return flows


def stored_flows(
    storage: Storage,
    store: int,
    task: Task,
    here: Sequence[tuple[int, int]],
    state: Sequence[tuple[int, int]] | None,
) -> list[Flow]:
    """Return the flows that carry a task's data from the node ``store``. A run that has kept its
    work reads its ``state`` instead. It reads the state from the nodes that still have it or, if
    ``state`` is empty, from ``store``.
    """
    sources: Sequence[tuple[int, float]] = [(store, 1.0)]
    size = storage.load_bytes(task.model) / task.instances
    if state is not None:
        size = task.memory_gb * 1e9
        if state:
            total = whole_sum(count for _, count in state)
            sources = [(node, count / total) for node, count in state]
    return [
        Flow(source, node, size * count * part)
        for node, count in here
        for source, part in sources
        if size and source != node
    ]
