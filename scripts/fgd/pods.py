"""Pods, and the list they are read from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from dagsim.errors import TraceError
from dagsim.traces.chunks import read_rows
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source

T = TypeVar("T")
GPU = 1000
"""A whole GPU, in thousandths."""


class Pod(NamedTuple):
    """What one pod asks for: thousandths of CPUs, MiB, GPUs, and thousandths of each of these."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: str = ""
    """``V100M16|V100M32``: either; empty: any."""

    @property
    def shares(self) -> bool:
        """Whether it asks for a part of one GPU."""
        return self.gpus == 1 and self.milli < GPU

    @property
    def gpu_milli(self) -> int:
        """All it asks of GPUs."""
        return self.gpus * self.milli

    @property
    def kind(self) -> int:
        """How many whole GPUs it asks for; -1: a part of one."""
        return -1 if self.shares else self.gpus


def read_named(
    source: Source, what: str, columns: Sequence[str], read: Callable[..., T], optional: Sequence[str] = ()
) -> list[T]:
    """What ``read`` makes of the other columns of each row, in the order of the first.

    Raises:
        TraceError: ``read`` refuses a row.
    """
    named = []
    for place, (name, *fields) in read_rows(source, ReadReport(strict=True), columns, optional, header=True):
        try:
            named.append((name, read(*fields)))
        except Dirty as error:
            raise TraceError(f"{source.where(place)}: a {what} {error}") from None
    return [row for _, row in sorted(named, key=lambda pair: pair[0])]


def read_pods(source: Source) -> list[Pod]:
    """The pods of an openb pod list, in the order of their names.

    Raises:
        TraceError: A row is not a pod, or no pod asks for a GPU.
    """
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    pods = read_named(source, "pod", columns, _pod, ("gpu_spec",))
    if not any(pod.gpus for pod in pods):
        raise TraceError(f"{source}: no pod asks for a GPU")
    return pods


def _pod(cpu: str, memory: str, gpus: str, milli: str, models: str) -> Pod:
    pod = Pod(
        int(finite_number(cpu, "cpu_milli")),
        int(finite_number(memory, "memory_mib")),
        count(gpus or "0", "num_gpu", 0),
        count(milli or "0", "gpu_milli", 0),
    )
    if not (0 < pod.milli <= GPU if pod.gpus == 1 else pod.milli == (GPU if pod.gpus else 0)):
        raise Dirty("with num_gpu and gpu_milli that disagree")
    allowed = "|".join([model.strip() for model in models.split("|") if model.strip()])
    return pod._replace(models=allowed) if pod.gpus else pod
