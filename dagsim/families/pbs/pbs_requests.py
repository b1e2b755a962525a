"""The requests of PBS jobs: chunks, which are equal parts of a job that each run on one node."""

from __future__ import annotations

import re
from typing import NamedTuple

from dagsim.families.pbs.pbs_nodes import pbs_memory_gb
from dagsim.model.arithmetic import whole_sum
from dagsim.traces.fields import Dirty, count

GPU_KEYS = ("ngpus", "gpus", "gpu", "naccelerators", "accelerators", "ngpu")
_CORES = ("ncpus", "ppn", "mpiprocs")
_SLOTS = re.compile(r"(?:^|\+)([^+/]{1,255})(?:/([^+*]*))?(?:\*(\d{1,9}))?")
_TYPE_KEYS = ("accelerator_model", "gpu_model", "gpu_type", "gputype")
_ASKED = ("select", "nodes", "neednodes", "procs", "ncpus", "nodect")


class PbsRequest(NamedTuple):
    """The resources of a job, as a record states them. A resource that it does not state is an empty
    text."""

    select: str
    nodes: str
    neednodes: str
    procs: str
    nodect: str
    gpus: str
    """The total of the GPUs."""
    ncpus: str
    memory: str
    hosts: str
    """The slots on which the job ran."""


class PbsChunk(NamedTuple):
    """A number of equal chunks (``pieces``), each on one node."""

    pieces: int = 1
    gpus: int = 0
    cpus: float = 0.0
    memory_gb: float = 0.0
    kind: str = ""


def with_gpus(fields: dict[str, str]) -> dict[str, str]:
    """Return the fields of a record with ``gpus`` set to the total number of GPUs that the record
    states."""
    stated = [fields.get(f"Resource_List.{name}", "") for name in GPU_KEYS]
    held = fields.get("exec_gpus", "")  # the value has the form node-gpu/0+node-gpu/1 (Torque)
    total = next(filter(None, stated), "") or (str(held.count("+") + 1) if held else "")
    asked, needed = fields.get("Resource_List.nodes", ""), fields.get("Resource_List.neednodes", "")
    # In Torque, a prologue or a filter may have added GPUs, which only neednodes states.
    if "gpus=" in needed and "gpu" not in asked:
        fields = fields | {"Resource_List.nodes": needed}
    # The record contains no request, so use the allocation.
    if not any(fields.get(f"Resource_List.{name}") for name in _ASKED):
        chunks = re.sub(r"\)\+\(", "+", fields.get("exec_vnode", "")).strip("()")
        fields = fields | {"Resource_List.select": chunks}
    return fields | {"gpus": total}


def chunks_of(request: PbsRequest) -> list[PbsChunk]:
    """Return the demand of a job. Equal chunks are merged.

    Raises:
        Dirty: A number is invalid.
    """
    total = count(request.gpus or "0", "ngpus", 0)
    parsed = _stated_chunks(request, total)
    pieces = whole_sum(chunk.pieces for chunk in parsed)
    if total and not any(chunk.gpus for chunk in parsed):
        if total % pieces and total < pieces and pieces % total == 0 and len(parsed) == 1:
            # Several cores share a GPU, so make one part per GPU with all of its cores.
            parsed = [parsed[0]._replace(pieces=total, cpus=parsed[0].cpus * pieces / total)]
            pieces = total
        if total % pieces:
            raise Dirty("with GPUs that are not spread evenly over their nodes")
        parsed = [chunk._replace(gpus=total // pieces) for chunk in parsed]
    if not any(chunk.memory_gb for chunk in parsed):
        share = pbs_memory_gb(request.memory) / pieces
        parsed = [chunk._replace(memory_gb=share) for chunk in parsed]
    merged: dict[PbsChunk, int] = {}
    for chunk in parsed:
        merged[chunk._replace(pieces=0)] = merged.get(chunk._replace(pieces=0), 0) + chunk.pieces
    return [chunk._replace(pieces=pieces) for chunk, pieces in merged.items()]


def _stated_chunks(request: PbsRequest, gpus: int) -> list[PbsChunk]:
    """Return the chunks that a job requests, from the first field of the record that states them.
    ``gpus`` is the total number of GPUs.
    """
    if stated := request.select or request.nodes or (request.neednodes if not request.procs else ""):
        return [parsed_chunk(part) for part in stated.split("+")]
    if request.procs:
        return [PbsChunk(count(request.procs, "procs"), 0, 1.0)]
    if request.ncpus or gpus:
        pieces = count(request.nodect or "1", "nodect")
        return [PbsChunk(pieces, 0, count(request.ncpus or "0", "ncpus", 0) / pieces)]
    return _held(request.hosts) or [PbsChunk(count(request.nodect or "1", "nodect"), 0, 1.0)]


def _held(hosts: str) -> list[PbsChunk]:
    """Parse the slots in ``exec_host`` into chunks: ``n1/0*8+n2/0*8``, ``n1/0+n1/1`` or ``n1/0-7``."""
    slots: dict[str, int] = {}
    for host, listed, times in _SLOTS.findall(hosts):
        number = int(times or 1)
        if not times and listed:
            ranges_ = [part.partition("-") for part in listed.split(",")]
            number = sum(
                int(last) - int(first) + 1 for first, dash, last in ranges_ if dash and (first + last).isdecimal()
            )
            number += sum(not dash for _, dash, _ in ranges_)
        slots[host] = slots.get(host, 0) + max(number, 1)
    return [PbsChunk(1, 0, float(cores)) for cores in slots.values()]


def parsed_chunk(text: str) -> PbsChunk:
    """Parse PBS's ``2:ncpus=8:ngpus=2:mem=4gb``, or Torque's ``2:ppn=8:gpus=4``. In the latter, the
    name of a node counts as one node.
    """
    first, *rest = text.split(":")
    if "=" in first:
        rest, first = [first, *rest], "1"
    pieces = count(first, "chunks") if first.isdecimal() else 1
    fields = {key: value for key, _, value in (part.partition("=") for part in rest)}
    return PbsChunk(
        pieces,
        count(next((fields[key] for key in GPU_KEYS if fields.get(key)), "0"), "ngpus", 0),
        count(next((fields[key] for key in _CORES if fields.get(key)), "1"), "ncpus", 0),
        pbs_memory_gb(fields.get("mem") or "0"),
        next((fields[key] for key in _TYPE_KEYS if fields.get(key)), ""),
    )
