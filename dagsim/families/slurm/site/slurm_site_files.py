"""Readers for the files and listings of a Slurm site.

Each file is recognised by its content: ``slurm.conf`` with its includes, ``gres.conf``,
``topology.conf``, listings of ``scontrol show`` (config, partition, node, reservation, license), of
``sacctmgr`` (``dump``, ``show assoc``, ``show qos``, ``show event``) and of ``sdiag``, and
slurmctld's log. A listing of ``scontrol`` shows the settings that the controller uses, so it takes
precedence over ``slurm.conf``. Settings are interpreted according to slurm.conf(5) and sacctmgr(1),
version 24.11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from zoneinfo import ZoneInfo

from dagsim.errors import TraceError
from dagsim.families.site.node_lists import read_nodes
from dagsim.families.slurm.site.controller_log import read_controller_log
from dagsim.families.slurm.site.sacctmgr_listings import (
    read_sacctmgr_assoc,
    read_sacctmgr_dump,
    read_sacctmgr_events,
    read_sacctmgr_qos,
    read_sshare,
)
from dagsim.families.slurm.site.site_file_kinds import (
    CONFIGURATION_FILES,
    WRITTEN_AT,
    copied_from,
    is_job_log,
    site_file_kind,
)
from dagsim.families.slurm.site.slurm_conf_files import SETTING, read_gres_conf, read_slurm_conf, read_topology_conf
from dagsim.families.slurm.site.slurm_site import SlurmSite
from dagsim.families.slurm.site.slurm_site_values import licences_of, naming
from dagsim.traces.fields import Dirty, finite_number
from dagsim.traces.source import Source
from dagsim.traces.times import is_unset, moment_s


def read_slurm_site(files: Sequence[Path], zone: ZoneInfo | None = None) -> SlurmSite:
    """Read the files of a site, ignoring files of other kinds. ``zone`` is the time zone of dates
    that have no offset (default UTC).

    Raises:
        TraceError: A file cannot be read.
    """
    site = SlurmSite(zone=zone)
    kinds = [(file, site_file_kind(file)) for file in files]
    copies = {file: other for file, kind in kinds if (other := copied_from(file, kind, kinds))}
    kinds = [(file, kind) for file, kind in kinds if file not in copies]
    included = {
        Path(name).name
        for file, kind in kinds
        if copies and kind in CONFIGURATION_FILES
        for name in re.findall(r"^\s*include\s+(\S+)", Source(file).read_bytes().decode(errors="replace"), _LINES)
    }
    for file, other in copies.items():
        if file.name in included:
            site.read.append((file.name, f"a part of {other}"))
        else:
            site.drop(f"{file.name}: not read, because Slurm reads {other} and the files that it includes")
    order = list(SITE_FILE_READERS)
    for file, kind in sorted(kinds, key=lambda pair: order.index(pair[1]) if pair[1] in order else len(order)):
        if kind in SITE_FILE_READERS:
            site.read.append((file.name, kind))
            with naming(str(file)):
                SITE_FILE_READERS[kind](site, file)
    site.unread += [(file.name, "not recognised, or cut off") for file, kind in kinds if not (kind or is_job_log(file))]
    return site


_LINES = re.IGNORECASE | re.MULTILINE


def _read_config(site: SlurmSite, file: Path) -> None:
    for number, line in Source(file).lines():
        if line.startswith(WRITTEN_AT):
            try:
                site.written_s = moment_s(line.removeprefix(WRITTEN_AT).strip(), "date", site.zone)
            except Dirty as error:
                raise TraceError(f"{file}:{number}: a configuration {error}") from None
        key, equals, value = line.partition("=")
        if equals and key.strip().isidentifier():
            site.conf[key.strip().lower()] = "" if is_unset(value) else value.strip()
    for name, total in licences_of(site.conf.get("licenses", "")):
        site.licences[name] = total


def _read_listed(site: SlurmSite, file: Path) -> None:
    for node in read_nodes(Source(file)):
        stated = site.nodes.get(node.name, {}).get("weight")
        weight = node.weight if stated is None else finite_number(stated, f"weight of {node.name}")
        site.listed.setdefault(node.name, replace(node, weight=weight))


def _read_partitions(site: SlurmSite, file: Path) -> None:
    for block in _blocks(file, "PartitionName"):
        name = block.pop("partitionname")
        site.partitions[name] = site.partitions.get(name, {}) | {
            key: value for key, value in block.items() if not is_unset(value)
        }


def _read_reservations(site: SlurmSite, file: Path) -> None:
    for block in _blocks(file, "ReservationName"):
        name = block["reservationname"]
        first = site.reservations.setdefault(name, block)
        # The file lists each occurrence of a recurring reservation. Keep the earliest.
        if (_start_s(site, block) or inf) < (_start_s(site, first) or inf):
            site.reservations[name] = block


def _start_s(site: SlurmSite, block: Mapping[str, str]) -> float | None:
    with suppress(Dirty):
        return moment_s(block.get("starttime", ""), "start", site.zone)
    return None


def _read_log(site: SlurmSite, file: Path) -> None:
    """Read outages of nodes, creation times of reservations, and reservations that no listing
    contains.
    """
    site.log = read_controller_log(file, site.zone)
    known = set(site.outages)
    site.outages += [outage for outage in site.log.outages if outage not in known]
    for name, block in site.log.reservations.items():
        site.reservations.setdefault(name, block)


def _read_licences(site: SlurmSite, file: Path) -> None:
    for block in _blocks(file, "LicenseName"):
        site.licences[block["licensename"]] = finite_number(block.get("total", "0"), "total")


def _blocks(file: Path, first: str) -> Iterator[dict[str, str]]:
    """Yield the blocks that ``scontrol show`` prints. Each block begins with the key ``first``, and
    keys are converted to lower case."""
    block: dict[str, str] = {}
    for _, line in Source(file).lines():
        if line.lstrip().startswith(f"{first}="):
            if block:
                yield block
            block = {}
        for key, value in SETTING.findall(line):
            block.setdefault(key.lower(), value.strip('"'))
    if block:
        yield block


def _read_sdiag(site: SlurmSite, file: Path) -> None:
    """Read how long a backfill cycle takes on average (in microseconds in the file)."""
    backfilling = Source(file).read_bytes().decode(errors="replace").partition("Backfilling stats")[2]
    if cycle := re.search(r"^\s*Mean cycle:\s*(\d+)\s*$", backfilling.partition("Latency")[0], re.MULTILINE):
        site.bf_cycle_s = int(cycle[1]) / 1e6


SITE_FILE_READERS: dict[str, Callable[[SlurmSite, Path], None]] = {
    "slurm.conf": read_slurm_conf,
    "gres.conf": read_gres_conf,
    "scontrol show config": _read_config,
    "scontrol show nodes": _read_listed,
    "sinfo": _read_listed,
    "scontrol show partition": _read_partitions,
    "scontrol show reservation": _read_reservations,
    "scontrol show license": _read_licences,
    "sacctmgr show qos": read_sacctmgr_qos,
    "sacctmgr dump": read_sacctmgr_dump,
    "sshare": read_sshare,
    "sacctmgr show assoc": read_sacctmgr_assoc,
    "sacctmgr show event": read_sacctmgr_events,
    "sdiag": _read_sdiag,
    "slurmctld.log": _read_log,
    "topology.conf": read_topology_conf,
}
"""Readers by kind of file, in the order in which they must run."""
