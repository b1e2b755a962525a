"""Readers for the listings of ``sacctmgr`` (``dump``, ``show assoc``, ``show qos``, ``show event``)
and ``sshare``.
"""

from __future__ import annotations

import re
from pathlib import Path

from dagsim.errors import TraceError
from dagsim.families.slurm.site.controller_log import OutageKind, SingleOutage
from dagsim.families.slurm.site.slurm_site import SlurmSite
from dagsim.families.slurm.site.slurm_site_values import TOPMOST, drop_unused
from dagsim.traces.fields import Dirty
from dagsim.traces.source import Source
from dagsim.traces.times import is_unset, span_s


def _table(file: Path) -> list[dict[str, str]]:
    """Return the rows of ``sacctmgr -P``, with column names in lower case and without spaces."""
    lines = [line for _, line in Source(file).lines() if line.strip()]
    names = [name.strip().lower().replace(" ", "") for name in lines[0].split("|")]
    return [dict(zip(names, map(str.strip, line.split("|")), strict=False)) for line in lines[1:]]


def _of_cluster(site: SlurmSite, rows: list[dict[str, str]], file: Path) -> list[dict[str, str]]:
    """Return the rows in a sacctmgr listing that belong to the site's cluster, which slurm.conf
    names.

    Raises:
        TraceError: All rows belong to other clusters, or the rows belong to several clusters and no
            file names the site's cluster.
    """
    names = dict.fromkeys(row["cluster"].lower() for row in rows if row.get("cluster"))
    ours = site.cluster_name.lower()
    if not names or (not ours and len(names) == 1):
        return rows
    listed = ", ".join(list(names)[:5])
    if not ours:
        raise TraceError(
            f"{file}: the file lists several clusters ({listed}); add slurm.conf, which names the site's cluster"
        )
    if ours not in names:
        raise TraceError(
            f"{file}: the file belongs to a different cluster ({listed}) than slurm.conf ({ours}); keep one of them"
        )
    if len(names) > 1:
        site.drop(f"{file.name}: rows from clusters other than {ours}")
    return [row for row in rows if row.get("cluster", "").lower() in ("", ours)]


def read_sacctmgr_qos(site: SlurmSite, file: Path) -> None:
    """Read the qualities of service."""
    for row in _table(file):
        if row.get("name"):
            site.qos[row["name"]] = row


_DUMPED = re.compile(r"^(Cluster|Parent|Account|User) - '([^']*)'(.*)$")
# Values may contain ``=`` and ``:``, such as gres/gpu:a100=1.
_OPTION = re.compile(r":([A-Z]\w+)=('[^']*'|.*?)(?=:(?:[A-Z][a-z]|QOS)\w*=|$)")


def read_sacctmgr_dump(site: SlurmSite, file: Path) -> None:
    """Read the tree of accounts, and the users."""
    parent = "root"
    for _, line in Source(file).lines():
        match = _DUMPED.match(line)
        if match is None:
            continue
        kind, name, rest = match.groups()
        if kind == "Cluster":
            _of_cluster(site, [{"cluster": name}], file)
        row = {key.lower(): value.strip("'") for key, value in _OPTION.findall(rest)}
        if kind == "Parent":
            parent = name
        if kind == "Cluster" or (kind == "Account" and name == "root"):
            drop_unused(site, f"{kind.lower()} {name}", row, TOPMOST)
        elif kind == "Account":
            site.accounts[name] = (parent, row)
        elif kind == "User" and parent != "root":
            site.users.setdefault((parent, name), row)


def read_sshare(site: SlurmSite, file: Path) -> None:
    """Read shares. The indentation of the accounts gives the tree."""
    lines = [line for _, line in Source(file).lines() if line.strip()]
    above: list[tuple[int, str]] = [(-1, "root")]
    fresh = not site.accounts
    for row, line in zip(_table(file), lines[1:], strict=False):
        account, user, depth = row["account"], row["user"], len(line) - len(line.lstrip())
        shares = {"fairshare": row["rawshares"]}
        if account == "root" or not account:
            continue
        if user:
            site.users.setdefault((account, user), shares)
            continue
        while above[-1][0] >= depth:
            above.pop()
        if fresh:
            site.accounts[account] = (above[-1][1], shares)
        above.append((depth, account))


def read_sacctmgr_assoc(site: SlurmSite, file: Path) -> None:
    """Read associations. The trees in a dump and in the output of sshare take precedence, because
    this listing contains parents only if the command requested them.
    """
    rows = _of_cluster(site, _table(file), file)
    stated = bool(rows) and "parentname" in rows[0]
    fresh, before = not site.accounts, set(site.accounts)
    for row in rows:
        row["fairshare"] = row.get("share") or row.get("fairshare") or "1"
        account, user = row.get("account", ""), row.get("user", "")
        if not account or account == "root":
            continue
        if user and row.get("partition"):
            site.drop(f"account {account}: an association of {user} with the partition {row['partition']}")
        elif user:
            site.users[account, user] = row | site.users.get((account, user), {})
        else:
            parent, columns = site.accounts.get(account, (row.get("parentname") or "root", {}))
            for key in ("fairshare", "grptres", "grpjobs", "maxjobs"):
                if row.get(key) and columns.get(key) and row[key] != columns[key]:
                    site.drop(
                        f"account {account}: {key} is {row[key]} in {file.name}, {columns[key]} "
                        "in a dump or sshare, which is used; one of the files is older"
                    )
            site.accounts[account] = (parent, row | columns)
    listed = {row.get("account", "") for row in rows} - {"", "root"}
    for names, here, there in (
        (before - listed, "a dump or sshare", file.name),
        (listed - before, file.name, "a dump"),
    ):
        if before and names:
            shown = ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
            site.drop(f"accounts in {here}, but not in {there}: {shown}; one of the files is older")
    if fresh and not stated and len(site.accounts) > 1:
        site.drop("sacctmgr show assoc without ParentName: all accounts are taken as children of root (add a dump)")


_MARKS = "*~#!%$@^-"
_DOWN = frozenset({"DOWN", "FAIL", "FAILED", "ERROR", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN", "POWER_DOWN",
                   "REBOOT", "REBOOT_ISSUED"})  # fmt: skip
_DRAIN = frozenset({"DRAIN", "DRAINED", "DRAINING", "DRNG", "FAILING", "MAINT", "INVAL", "INVALID_REG"})


def read_sacctmgr_events(site: SlurmSite, file: Path) -> None:
    """Read events of nodes. An event without a node concerns the whole cluster. An event without an
    end is assumed to continue.
    """
    rows = _table(file)
    ours = {id(row) for row in _of_cluster(site, rows, file)}
    for number, row in enumerate(rows, 2):
        if id(row) not in ours:
            continue
        node, words = row.get("nodename", ""), {word.strip(_MARKS).upper() for word in row.get("state", "").split("+")}
        if is_unset(node):
            continue
        kind: OutageKind | None = "down" if words & _DOWN else "drain" if words & _DRAIN else None
        if not kind:
            site.drop(f"sacctmgr show event: state {row.get('state', '')!r}")
            continue
        try:
            start_s, end_s = span_s(
                row.get("timestart", ""), row.get("timeend", ""), row.get("duration", ""), site.zone
            )
        except Dirty as error:
            raise TraceError(f"{file}:{number}: an event {error}") from None
        if start_s is None or (end_s is not None and end_s <= start_s):
            site.drop("sacctmgr show event: events without a start, or with an end at their start")
        else:
            site.outages.append(SingleOutage(node, start_s, end_s, kind))
