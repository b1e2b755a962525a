"""Read the files of sites with any kind of scheduler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from dagsim.errors import DagsimError, TraceError
from dagsim.families.site.node_lists import ImportedSite
from dagsim.family import family_entries
from dagsim.model import Job
from dagsim.own_code import attribute
from dagsim.spelling import nearest_file
from dagsim.text import count_of
from dagsim.traces import Trace, open_trace
from dagsim.traces.source import Source

_OWNED = re.compile(r"(partition|QOS|reservation|queue|LocalQueue) ([^:\s]+):(?!.* workloads\)$)")
"""Pattern for the owner of a setting, with which the text of the setting begins."""


def site_files(paths: Iterable[Path]) -> list[Path]:
    """Return all files that are given by name or are in one of the given folders.

    Raises:
        TraceError: A file or folder does not exist.
    """
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise TraceError(f"{path}: no such file or folder{nearest_file(path)}")
        files += sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    return files


def holds_site(folder: Path) -> bool:
    """Return True if the files in a folder describe a site.

    Raises:
        TraceError: See ``read_site``.
    """
    return read_site(site_files([folder])) is not None


def read_site(files: Sequence[Path], zone: ZoneInfo | None = None) -> ImportedSite | None:
    """Read the site that the files describe. Return None if no file describes queues.

    Raises:
        TraceError: A file cannot be read, or the files belong to several kinds of schedulers.
    """
    unread: dict[Path, str] = {}
    for file in files:
        try:
            Source(file).head()
        except TraceError as error:  # the file is empty or is not text
            unread[file] = str(error).rpartition(": ")[2]
    sites = sites_in([file for file in files if file not in unread], zone)
    named = {kind: site for kind, site in sites.items() if site.has_queues}
    if len(named) > 1:
        listed = "; ".join(f"{kind}: {', '.join([name for name, _ in site.read][:3])}" for kind, site in named.items())
        raise TraceError(f"the files come from several schedulers ({listed}); import one at a time")
    for site in named.values():
        site.unread += [(file.name, why) for file, why in unread.items()]
        return site
    return None


def sites_in(files: Sequence[Path], zone: ZoneInfo | None = None) -> dict[str, ImportedSite]:
    """Return the site that the reader for each kind of scheduler finds in the files, by the name of
    the kind. Most of these sites have no queues.

    Raises:
        TraceError: A file cannot be read.
    """
    kinds = {entry.name: attribute(f"{home}{entry.target}") for home, entry in family_entries("sites")}
    return {name: read(files, zone) for name, read in kinds.items()}


def site_parts() -> list[str]:
    """Describe, for each kind of scheduler, the files that make a folder a site."""
    return [entry.summary for _, entry in family_entries("sites")]


def log_in(paths: Sequence[Path]) -> Trace | None:
    """Return the log in a site's folder, or None if there is no log that can be read without
    options.
    """
    with suppress(DagsimError):
        if len(paths) == 1 and paths[0].is_dir():
            return open_trace(paths[0])
    return None


def with_jobs(unmodelled: Iterable[str], log: Trace | None, written_s: float | None = None) -> list[str]:
    """Return the settings that are not modelled. If the folder has a log and the owner of a setting
    (a partition, QOS, reservation or queue) is known, state the number of jobs that the setting
    affects. Also report jobs that were submitted after ``written_s``, the date of the
    configuration.
    """
    settings = list(unmodelled)
    jobs: list[Job] = []
    origin_s = 0.0
    with suppress(DagsimError):  # some logs can only be read with an option
        if log is not None:
            jobs = list(log.jobs())
            origin_s = log.meta.get("origin_s", 0.0)
    if not jobs:
        return settings
    if written_s is not None and (later := sum(origin_s + job.arrival_s > written_s for job in jobs)):
        date = datetime.fromtimestamp(written_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        settings.append(
            f"changes since {date}, when the configuration was written ({later:,} of "
            f"{count_of(len(jobs), 'job')} came later)"
        )
    counts: dict[str, Counter[str]] = {
        "partition": Counter(job.partition for job in jobs),
        "account": Counter(job.account for job in jobs),
        "QOS": Counter(job.qos for job in jobs),
        "reservation": Counter(job.request.reservation for job in jobs if job.request),
    }
    counts |= dict.fromkeys(("queue", "LocalQueue"), counts["partition"])
    listed = []
    for text in settings:
        owner = _OWNED.match(text)
        number = None if owner is None else counts[owner[1]][owner[2].rpartition("/")[2]]
        listed.append(text if number is None else f"{text} ({number:,} of {count_of(len(jobs), 'job')})")
    return listed
