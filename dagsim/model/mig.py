"""Partitions of GPUs (NVIDIA Multi-Instance GPU, MIG): the profiles of each GPU type, and their
possible positions.

The tables come from NVIDIA's MIG User Guide ("Supported MIG Profiles") and from ``nvidia-smi mig
-lgipp``. A partition with a profile occupies a number of compute slices and memory slices, and can
begin only at certain memory slices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from dagsim.errors import ModelError
from dagsim.model.arithmetic import whole_sum
from dagsim.model.gpu import GpuType, canonical

_ROUNDING = 1e-9
_PROFILE = re.compile(r"(\d)g\.(\d{1,3})gb", re.IGNORECASE)
_SLICES, _A30_SLICE_GB = 7, 6
"""Compute slices of the types that have no table, and the memory of a slice of the A30."""


class MigProfile(NamedTuple):
    """A profile, that is, a possible size of a partition: its numbers of ``compute`` and ``memory``
    slices, and the memory slices at which it may begin.
    """

    name: str
    compute: int
    memory: int
    starts: tuple[int, ...]

    def mask(self, start: int) -> int:
        """Return a bit set of the memory slices that a partition with this profile occupies from
        ``start`` onwards.
        """
        return ((1 << self.memory) - 1) << start


class MigPart(NamedTuple):
    """An existing partition of a GPU, whether in use or not. ``profile`` is an index into the
    table.
    """

    start: int
    profile: int
    busy: bool


MigLayout = tuple[MigPart, ...]
"""The partitions of a GPU, sorted by start. Empty if the GPU is not partitioned."""


@dataclass(frozen=True, slots=True)
class MigTable:
    """The profiles of a GPU type, smallest first, and the number of its compute slices."""

    gpu: str
    compute: int
    profiles: tuple[MigProfile, ...]

    def profile(self, gpus: float, gpu_types: tuple[str, ...] | None = None) -> int | None:
        """Return the index of the profile for a demand of up to one GPU. If the demand names
        profiles of this type (``TYPE-PROFILE``), this is the smallest of them. Otherwise, it is the
        smallest profile with enough compute slices. Return None if there is no such profile.
        """
        return _profile_of(self, gpus, gpu_types)

    def opening(self, layout: MigLayout, profile: int) -> tuple[int, bool] | None:
        """Return the position of the partition that the next task with this profile would use, and
        whether this partition already exists. Return None if no such partition fits.

        A free partition with the profile is used first. A new partition replaces free partitions.
        Of the possible positions of a new partition, the one that leaves space for the largest
        profiles is chosen.
        """
        return _opening(self, layout, profile)

    def room(self, layout: MigLayout, profile: int) -> int:
        """Return how many partitions with a profile could be used in addition to the partitions in
        use.
        """
        taken, mask = self.taken(layout), self.profiles[profile].mask
        return sum([not taken & mask(start) for start in self.profiles[profile].starts])

    def taken(self, layout: MigLayout) -> int:
        """Return a bit set of the memory slices that are in use."""
        return whole_sum([self.profiles[part.profile].mask(part.start) for part in layout if part.busy])

    def used(self, layout: MigLayout, start: int, profile: int) -> MigLayout:
        """Return the layout after a partition at ``start`` has come into use. Free partitions that
        overlap it are removed.
        """
        mask = self.profiles[profile].mask(start)
        kept = [part for part in layout if not self.profiles[part.profile].mask(part.start) & mask]
        return tuple(sorted([*kept, MigPart(start, profile, True)]))

    def freed(self, layout: MigLayout, start: int) -> MigLayout:
        """Return the layout after the partition at ``start`` has become free. The partition
        continues to exist until its space is needed.
        """
        return tuple([part._replace(busy=False) if part.start == start else part for part in layout])


def _table(gpu: str, compute: int, *rows: tuple[str, int, int, tuple[int, ...]]) -> MigTable:
    return MigTable(gpu, compute, tuple([MigProfile(*row) for row in rows]))


def _sevenths(gpu: str, *gb: int) -> MigTable:
    """Return the table of a GPU type with 7 compute slices and 8 memory slices. ``gb`` contains the
    sizes of 1, 2, 4 and 8 memory slices in GB.
    """
    one, two, four, eight = gb
    return _table(
        gpu,
        7,
        (f"1g.{one}gb", 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        (f"1g.{two}gb", 1, 2, (0, 2, 4, 6)),
        (f"2g.{two}gb", 2, 2, (0, 2, 4)),
        (f"3g.{four}gb", 3, 4, (0, 4)),
        (f"4g.{four}gb", 4, 4, (0,)),
        (f"7g.{eight}gb", 7, 8, (0,)),
    )


MIG_TABLES: Mapping[str, MigTable] = {
    table.gpu: table
    for table in (
        _sevenths("A100-40", 5, 10, 20, 40),
        _sevenths("A100-80", 10, 20, 40, 80),
        _sevenths("H100", 10, 20, 40, 80),
        _table("A30", 4, ("1g.6gb", 1, 1, (0, 1, 2, 3)), ("2g.12gb", 2, 2, (0, 2)), ("4g.24gb", 4, 4, (0,))),
    )
}
"""The table of each GPU type that can be partitioned. Profiles with media extensions are left out."""


def mig_share(size: int, memory_gb: int) -> float:
    """Return the share of a GPU that the MIG profile ``{size}g.{memory_gb}gb`` has."""
    is_a30 = memory_gb == _A30_SLICE_GB * size  # no other GPU has slices of this size
    return size / (MIG_TABLES["A30"].compute if is_a30 else _SLICES)


def mig_slice(gpu: GpuType, profile: str) -> GpuType:
    """Return the GPU type that represents one partition of ``gpu`` with a MIG profile such as
    ``1g.5gb``. The profile's name states the partition's compute slices and memory.

    Raises:
        ModelError: The GPU has no such profile.
    """
    match = _PROFILE.fullmatch(profile)
    of = MIG_TABLES[gpu.name].compute if gpu.name in MIG_TABLES else _SLICES
    size, memory_gb = (int(match[1]), float(match[2])) if match else (0, 0.0)
    if not 1 <= size <= of or not 0 < memory_gb <= gpu.memory_gb:
        raise ModelError(
            f"{profile!r} is not a MIG profile of {gpu.name}, which has {of} compute slices and {gpu.memory_gb:g} GB"
        )
    part = size / of
    return GpuType(
        name=f"{gpu.name}-{size}g.{match[2] if match else ''}gb",
        fp32_tflops=gpu.fp32_tflops * part,
        memory_gb=memory_gb,
        bandwidth_gb_s=gpu.bandwidth_gb_s * memory_gb / gpu.memory_gb,
        tdp_watts=gpu.tdp_watts * part,
        idle_watts=gpu.idle_watts * part,
        tf32_tflops=gpu.tf32_tflops and gpu.tf32_tflops * part,
        fp16_tflops=gpu.fp16_tflops and gpu.fp16_tflops * part,
        sources={"fp32_tflops": f"{size} of {of} compute slices of {gpu.name}"},
    )


def slice_type(name: str) -> tuple[str, str] | None:
    """Return the GPU type and the profile in a name such as ``A100-40-3g.20gb``, or None for any other
    name.
    """
    gpu, dash, profile = name.rpartition("-")
    table = MIG_TABLES.get(canonical(gpu)) if dash else None
    return None if table is None or profile not in [one.name for one in table.profiles] else (table.gpu, profile)


def parted_types(gpu_types: tuple[str, ...] | None) -> frozenset[str]:
    """Return the GPU types for which a task names only partitions, not whole GPUs."""
    names = {canonical(name) for name in gpu_types or ()}
    return frozenset([part[0] for part in map(slice_type, names) if part is not None]) - names


def named_types(gpu_types: tuple[str, ...]) -> frozenset[str]:
    """Return the GPU types that a task names, either as whole GPUs or by a partition."""
    return parted_types(gpu_types) | {canonical(name) for name in gpu_types}


@cache
def _profile_of(table: MigTable, gpus: float, gpu_types: tuple[str, ...] | None) -> int | None:
    names = [canonical(name) for name in gpu_types or (table.gpu,)]
    slices = [part[1] for part in map(slice_type, names) if part is not None and part[0] == table.gpu]
    for index, profile in enumerate(table.profiles):
        allowed = table.gpu in names or profile.name in slices
        if allowed and profile.compute >= gpus * table.compute - _ROUNDING:
            return index
    return None


@cache
def _opening(table: MigTable, layout: MigLayout, profile: int) -> tuple[int, bool] | None:
    taken, wanted = table.taken(layout), table.profiles[profile]
    there = {part.start for part in layout if part.profile == profile}
    ranks = []
    for start in wanted.starts:
        if not taken & wanted.mask(start):
            after = table.used(layout, start, profile)
            left = [table.room(after, other) for other in range(len(table.profiles) - 1, -1, -1)]
            ranks.append(((start in there, left, len(after), -start), start))
    if not ranks:
        return None
    start = max(ranks)[1]
    return start, start in there
