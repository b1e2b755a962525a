"""Checks of an input. They find contradictions within a log, and between the log and the site on
which it will be simulated.

An ``Auditor`` creates an ``Audit`` while the jobs are read, before anything is simulated. The
``Audit`` becomes part of the facts about a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dagsim.model import Cluster, Demand, Job, QueueTree, Request, TaskGraph
from dagsim.model.gpu import canonical
from dagsim.model.mig import named_types
from dagsim.systems.cluster import services
from dagsim.systems.cluster.audit.audit import NAMED, Audit, listed
from dagsim.systems.cluster.audit.verdicts import EmptyCluster
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.resources.site import SiteState
from dagsim.systems.cluster.waits.wait_rules import Excess
from dagsim.text import on_one_line
from dagsim.traces.report import Contradiction, Hours, ReadReport
from dagsim.workload.accept import Accept
from dagsim.workload.array_tools import combinations
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

INVENTED = "sized"
"""Name of an invented cluster, which is sized to the jobs in a log."""
_ONE_NODE, _OUTLIER = 8, 4
"""The number of GPUs per node, and a factor. A single job decides the size of an invented cluster
if it requests more GPUs than a node has, and at least this factor more than any other job.
"""


class Auditor:
    """A checker that compares the jobs in a log with a cluster and its site. The jobs are read
    block by block.

    Nodes are compared by name only if the site has queues or at least one of the nodes in the log.
    Otherwise, the log comes from a different cluster, so its node names contradict nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        queues: QueueTree | None,
        runtime: Runtime,
        accept: Accept | None = None,
        levels: Mapping[str, tuple[int, ...]] | None = None,
        *,
        as_stated: bool = True,
        snapshot: bool = False,
        hint: str = "",
        broken: Callable[[], Callable[[Job], str]] | None = None,
    ) -> None:
        """Create an auditor without jobs.

        ``as_stated`` is False if the jobs will request other resources than the log states. The
        auditor then cannot check whether they fit. In a ``snapshot``, jobs without a start time are
        waiting. ``broken`` creates a function that names the site's rules under which a job can
        never start.
        """
        self._types, self._site = cluster.gpu_types, SiteState(cluster, queues, levels=levels)
        self._accept, self._hint = accept or {}, hint
        self._as_stated, self._snapshot = as_stated, snapshot
        self._nodes = {name: node for node in cluster.nodes for name in (node.name.partition(":")[0], node.name)}
        self._names = {} if queues is None else _names_of(queues)
        self._users = {} if queues is None else _users_of(queues)
        self._empty = EmptyCluster(cluster, queues, self._site, runtime, self._names.get("partitions", ()))
        self._invented = cluster.name == INVENTED
        self._queues, self._set_up = queues, broken
        self._broken: Callable[[Job], str] | None = None
        self._broken_by: dict[object, str] = {}
        self._names_users = queues is not None and any(node.limits_of for node, _ in queues.walk())
        self._smaller: dict[object, tuple[tuple[str, str], ...]] = {}
        self.begin()

    def begin(self) -> None:
        """Reset the audit. Call this before the log is read again."""
        self._audit = Audit()
        self._log_names: dict[str, set[str]] = {kind: set() for kind in (*self._names, "nodes", "gpu types")}
        self._asked: dict[tuple[str, str], tuple[Excess, Excess]] = {}
        """By kind and group of reasons that differ only in the amount: those with the smallest and
        the largest amount."""
        self._unknown = Contradiction()
        self._widest: list[tuple[float, str]] = []
        """GPUs of the two widest jobs, and their ids."""

    def add(self, jobs: JobArrays) -> None:
        """Add a block of jobs."""
        if not len(jobs):
            return
        job = np.repeat(np.arange(len(jobs)), np.diff(jobs.first))
        block = _Block(jobs, *jobs.hours())
        audit = self._audit
        audit.jobs += len(jobs)
        audit.hours = audit.hours.plus(Hours(float(block.gpu_h.sum()), float(block.core_h.sum())))
        if self._invented:
            gpus = np.array([kind.demand.gpus * 1.0 for kind in jobs.kinds])[jobs.kind] * jobs.instances
            by_job = np.maximum.reduceat(gpus, jobs.first[:-1])
            widest = np.argsort(by_job, kind="stable")[-2:].tolist()
            self._widest = sorted([*self._widest, *((float(by_job[at]), jobs.ids[at]) for at in widest)])[-2:]
        if self._as_stated:
            self._judge_room(block, job)
        for kind, column in (("partitions", jobs.partition), ("accounts", jobs.account), ("qos", jobs.qos)):
            if column is not None and kind in self._names:
                self._judge_names(kind, block, column)
        if jobs.account is not None and jobs.user is not None and self._users:
            self._judge_users(block, jobs.account, jobs.user)
        if jobs.request is not None and "reservations" in self._names:
            self._judge_names("reservations", block, jobs.request.mapped(lambda own: own.reservation if own else ""))
        if jobs.observed_nodes is not None:
            self._judge_nodes(block, jobs.observed_nodes)

    def audit(self, report: ReadReport | None = None) -> Audit:
        """Return the audit of all jobs so far, including the contradictions in the ``report`` of
        the reader.
        """
        found = self._audit
        kinds = {kind: replace(of, reasons=dict(of.reasons)) for kind, of in found.contradictions.items()}
        for kind in ("impossible", "stuck", "rules"):
            if kind in kinds:
                kinds[kind].reasons = {
                    self._with_amounts(kind, what): told for what, told in kinds[kind].reasons.items()
                }
        if self._unknown.count and (self._queues is not None or self._log_names["nodes"]):
            kinds["nodes"] = self._unknown
            if not self._log_names["nodes"]:
                names = list(self._unknown.reasons)
                ids = next(iter(self._unknown.reasons.values()))[1]
                why = f"none of the log's {len(names):,} nodes is known here: {listed(names, len(names))}"
                kinds["nodes"] = replace(self._unknown, reasons={why: (self._unknown.count, ids)})
        rows = found.jobs
        if report is not None:
            kinds |= report.contradictions
            rows = report.kept + report.dropped.total()
        return Audit(found.jobs, rows, found.hours, kinds, self._unused(), self._hint, self._doubts())

    def _doubts(self) -> tuple[str, ...]:
        """Return a warning if the size of an invented cluster is due to a single job, and otherwise nothing."""
        if len(self._widest) < 2:
            return ()
        (second, _), (gpus, job) = self._widest
        if gpus <= _ONE_NODE or gpus < _OUTLIER * second:
            return ()
        return (
            f"the cluster is invented, and one job decides its size: {on_one_line(job)!r} requests {gpus:,.0f} GPUs, "
            f"no other job more than {second:,.0f}; check that row, or give a cluster with --cluster",
        )

    def _unused(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        """Return the names that exist at the site but that no job has used so far."""
        known = {kind: names for kind, names in self._names.items() if self._log_names[kind]}
        if self._log_names["nodes"] and self._queues is not None:
            known["nodes"] = {node.name: None for node in self._nodes.values()}
        if self._log_names["gpu types"]:
            known["GPU types"] = {gpu.name: None for gpu in self._types if gpu is not None}
            self._log_names["GPU types"] = self._log_names["gpu types"]
        unused = {}
        for kind, names in known.items():
            seen = self._log_names[kind]
            if lacking := [name for name in names if name not in seen and name.partition(":")[0] not in seen]:
                unused["QOS" if kind == "qos" else kind] = len(lacking), tuple(lacking[:NAMED])
        return unused

    def _judge_room(self, block: _Block, job: np.ndarray) -> None:
        """Find the jobs that could not run even on the empty cluster."""
        jobs = block.jobs
        none = np.zeros(len(jobs), np.int32)
        partition, request = jobs.partition or Labels(none, ("",)), jobs.request or Labels(none, (None,))
        columns = [jobs.kind]
        columns += [of.place[job] for of in (partition, request) if len(of.words) > 1]
        code, firsts = combinations(columns)
        gangs = np.array([kind.gang for kind in jobs.kinds], bool)[jobs.kind]
        width = np.where(gangs, jobs.instances, 1)
        widest = np.zeros(len(firsts), np.int64)
        np.maximum.at(widest, code, width)
        verdicts: dict[int, str] = {}
        for place, first in enumerate(firsts.tolist()):
            kind, of = jobs.kinds[jobs.kind[first]], int(job[first])
            terms = (partition.words[partition.place[of]], request.words[request.place[of]])
            if self._empty.verdict(kind, int(widest[place]), *terms) is None:
                continue
            tasks = np.flatnonzero(code == place)
            for instances in np.unique(width[tasks]).tolist():
                if (verdict := self._empty.verdict(kind, instances, *terms)) is not None:
                    wrong = job[tasks[width[tasks] == instances]]
                    verdicts |= dict.fromkeys(wrong.tolist(), verdict)
        waits = np.zeros(len(jobs), bool)
        if self._snapshot:
            waits = ~waits if jobs.observed_start_s is None else np.isnan(jobs.observed_start_s)
        for kind_, picked in (("stuck", True), ("impossible", False)):
            chosen: dict[str, list[int]] = {}
            for place in sorted(verdicts):
                if waits[place] == picked:
                    chosen.setdefault(self._group(kind_, verdicts[place]), []).append(place)
            self._tell(kind_, block, chosen)
        if self._set_up is not None:
            self._judge_rules(block, job, np.array(sorted(verdicts), np.int64), waits)

    def _judge_rules(self, block: _Block, job: np.ndarray, known: np.ndarray, waits: np.ndarray) -> None:
        """Find the jobs that can never start under the site's rules. Leave out the jobs in
        ``known``, which do not fit on the cluster anyway.
        """
        jobs, texts = block.jobs, list[str]()
        broken = np.full(len(jobs), -1)
        """For each job, the index of the text that describes the broken rules, or -1 for none."""
        labels = [jobs.partition, jobs.request, jobs.account, jobs.qos, jobs.user if self._names_users else None]
        terms = [of.place[job] for of in labels if of is not None]

        def judge(rows: np.ndarray, limits: np.ndarray | None) -> None:
            """Check the tasks in these rows. Tasks with the same values are checked only once."""
            columns = [column[rows] for column in (jobs.kind, jobs.instances, *terms)]
            code, firsts = combinations([*columns, *([] if limits is None else [limits[rows]])])
            found = np.full(len(firsts), -1)
            for place, words in enumerate(self._words(jobs, job, rows[firsts], limits)):
                if words:
                    found[place] = len(texts)
                    texts.append(words)
            wrong = np.flatnonzero(found[code] >= 0)
            broken[job[rows[wrong]]] = found[code[wrong]]

        judge(np.arange(len(job)), None)
        if jobs.estimate is not None and (queues := self._queues) is not None:
            code, firsts = combinations([np.zeros(len(job), np.int32), *terms])
            longest = np.array([queues.time_limits(one).most_s for one in jobs.chosen(job[firsts]).jobs()])
            over = np.flatnonzero(jobs.estimate > longest[code] + _ROUNDING)
            if len(over):
                judge(over, jobs.estimate)
        broken[known] = -1
        for kind, picked in (("stuck", True), ("rules", False)):
            chosen: dict[str, list[int]] = {}
            places = np.flatnonzero((broken >= 0) & (waits == picked))
            places = places[np.argsort(broken[places], kind="stable")]
            for group in np.split(places, np.flatnonzero(np.diff(broken[places])) + 1):
                if not len(group):
                    continue
                what = self._group(kind, texts[broken[group[0]]])
                chosen[what] = sorted([*chosen.get(what, ()), *group.tolist()])
            self._tell(kind, block, chosen)

    def _group(self, kind: str, reason: str) -> str:
        """Return the text under which a reason is counted. Reasons that differ only in the requested
        amount have the same text, and are stated with the range of their amounts.
        """
        if not isinstance(reason, Excess):
            return reason
        what = "{}".join(reason.around)
        both = (*self._asked.get((kind, what), ()), reason)
        self._asked[kind, what] = min(both, key=_asked), max(both, key=_asked)
        return what

    def _with_amounts(self, kind: str, what: str) -> str:
        """Return the reason that is counted under a text, with the range of its amounts."""
        if (kind, what) not in self._asked:
            return what
        low, high = self._asked[kind, what]
        return low.to(high)

    def _words(self, jobs: JobArrays, job: np.ndarray, rows: np.ndarray, limits: np.ndarray | None) -> Iterator[str]:
        """For each of the ``rows``, yield a description of the rules under which its task can never
        start with its time limit. The description is empty if there are no such rules.
        """
        labels = (jobs.partition, jobs.request, jobs.account, jobs.qos, jobs.user if self._names_users else None)
        for row, one in zip(rows.tolist(), jobs.chosen(job[rows]).jobs(), strict=True):
            kind, instances = jobs.kinds[jobs.kind[row]], int(jobs.instances[row])
            limit, place = None if limits is None else float(limits[row]), job[row]
            key = (kind, instances, limit, *[None if of is None else of.words[of.place[place]] for of in labels])
            if key not in self._broken_by:
                if self._broken is None:
                    assert self._set_up is not None
                    self._broken = self._set_up()
                graph = TaskGraph((kind.task("job", 1.0, instances, limit),))
                self._broken_by[key] = self._broken(replace(one, graph=graph, in_flight=()))
            yield self._broken_by[key]

    def _judge_names(self, kind: str, block: _Block, column: Labels) -> None:
        """Find the jobs that name something that the site does not have, such as a partition or an
        account.
        """
        known, chosen = self._names[kind], dict[str, list[int]]()
        for place, word in enumerate(column.words):
            if word in known:
                self._log_names[kind].add(word)
            elif word and known and len(places := np.flatnonzero(column.place == place)):
                chosen[word] = places.tolist()
        self._tell(kind, block, chosen)

    def _judge_users(self, block: _Block, accounts: Labels, users: Labels) -> None:
        """Find the jobs whose users do not belong to the account of the job."""
        code, firsts = combinations([accounts.place, users.place])
        chosen = {}
        for place, first in enumerate(firsts.tolist()):
            account, user = accounts.words[accounts.place[first]], users.words[users.place[first]]
            if user and user not in self._users.get(account, (user,)):
                chosen[f"{user} in {account}"] = np.flatnonzero(code == place).tolist()
        self._tell("users", block, chosen)

    def _judge_nodes(self, block: _Block, column: Labels) -> None:
        """Find the jobs that ran on nodes missing from the cluster, and those that held more
        resources on a node than the cluster's description gives it.
        """
        jobs, chosen = block.jobs, dict[str, list[int]]()
        unknown = [[name for name in names if name not in self._nodes] for names in column.words]
        for place, names in enumerate(column.words):
            self._log_names["nodes"].update(name for name in names if name in self._nodes)
            if unknown[place]:
                places = np.flatnonzero(column.place == place).tolist()
                for name in unknown[place]:
                    chosen.setdefault(name, []).extend(places)
        self._tell("nodes", block, chosen, self._unknown)
        gpu = jobs.observed_gpu or Labels(np.zeros(len(jobs), np.int32), ("",))
        self._log_names["gpu types"].update(word for word in gpu.words if word)
        first = jobs.first[:-1]
        code, firsts = combinations([column.place, jobs.kind[first], jobs.instances[first], gpu.place])
        smaller: dict[str, list[int]] = {}
        others: dict[str, list[int]] = {}
        alone = np.diff(jobs.first) == 1
        for place, one in enumerate(firsts.tolist()):
            task = int(first[one])
            names = column.words[column.place[one]]
            wrong = self._differences(
                names, jobs.kinds[jobs.kind[task]], int(jobs.instances[task]), gpu.words[gpu.place[one]]
            )
            if wrong and alone[one]:
                places = np.flatnonzero((code == place) & alone).tolist()
                for kind, reason in wrong:
                    (smaller if kind == "smaller nodes" else others).setdefault(reason, []).extend(places)
        self._tell("smaller nodes", block, smaller)
        self._tell("gpu types", block, others)
        if jobs.partition is not None and self._queues is not None and self._queues.partitions:
            self._judge_members(block, column, jobs.partition)

    def _judge_members(self, block: _Block, column: Labels, partition: Labels) -> None:
        """Find the jobs that ran on nodes that do not belong to any of the job's partitions at the site."""
        none = np.zeros(len(block.jobs), np.int32)
        request, chosen = block.jobs.request or Labels(none, (None,)), dict[str, list[int]]()
        code, firsts = combinations([column.place, partition.place, request.place])
        for place, first in enumerate(firsts.tolist()):
            terms, name = request.words[request.place[first]], partition.words[partition.place[first]]
            names = (name,) if terms is None else terms.partitions or (name,)
            if not all(name in self._names["partitions"] for name in names) or (terms and terms.reservation):
                continue
            nodes = self._site.nodes_of(name, None if terms is None else Request(partitions=terms.partitions))
            elsewhere = [
                host
                for host in dict.fromkeys(column.words[column.place[first]])
                if host in self._nodes and not self._site.named(host) & nodes
            ]
            if elsewhere:
                why = f"{', '.join(names)}: {listed(elsewhere, len(elsewhere))}"
                chosen.setdefault(why, []).extend(np.flatnonzero(code == place).tolist())
        self._tell("other nodes", block, chosen)

    def _differences(
        self, names: tuple[str, ...], kind: TaskKind, instances: int, gpu: str
    ) -> tuple[tuple[str, str], ...]:
        """Return the resources that a job held according to the log, although its nodes do not have
        them.
        """
        key = (names, kind.demand, instances, gpu)
        if key not in self._smaller:
            self._smaller[key] = tuple(self._compared(names, kind.demand, instances, gpu))
        return self._smaller[key]

    def _compared(self, names: tuple[str, ...], demand: Demand, instances: int, gpu: str) -> Iterator[tuple[str, str]]:
        if not names or instances % len(names):
            return  # the log does not state how the job was divided among these nodes
        each = instances // len(names)
        for name, times in Counter(names).items():
            node = self._nodes.get(name)
            if node is None:
                continue
            held = {"GPUs": demand.gpus, "CPUs": demand.cpus, "GB": demand.memory_gb}
            there = {"GPUs": node.gpus, "CPUs": node.cpus, "GB": node.memory_gb}
            for what, one in held.items():
                amount = one * each * times
                if amount > there[what] + _ROUNDING:
                    yield "smaller nodes", f"{amount:g} {what} of {name}, which has {there[what]:g}"
                    return
            if gpu and node.gpu is not None and not self._is_like(gpu, node.gpu.name):
                yield "gpu types", f"{gpu} of {name}, which has {node.gpu.name}"
                return

    def _is_like(self, gpu: str, there: str) -> bool:
        """Return True if the log's name for a GPU type, or for a part of a GPU, may refer to the
        GPU type of a node.
        """
        like = named_types((gpu,))
        return there in like or any(there in map(canonical, self._accept.get(name, ())) for name in like)

    def _tell(
        self, kind: str, block: _Block, reasons: Mapping[str, list[int]], into: Contradiction | None = None
    ) -> None:
        """Add jobs, grouped by reason, to the contradictions of a kind."""
        reasons = {reason: places for reason, places in reasons.items() if places}
        if not reasons:
            return
        told = self._audit.contradictions.setdefault(kind, Contradiction()) if into is None else into
        every = np.unique(np.concatenate([np.array(places) for places in reasons.values()]))
        told.count += len(every)
        told.hours = told.hours.plus(Hours(float(block.gpu_h[every].sum()), float(block.core_h[every].sum())))
        for reason, places in reasons.items():
            told.add(reason, block.jobs.ids[places[:8]].tolist(), len(places))


_ROUNDING = 1e-6


class _Block(NamedTuple):
    """A block of jobs with their GPU-hours and core-hours."""

    jobs: JobArrays
    gpu_h: np.ndarray  # shape (J,), float64
    core_h: np.ndarray  # shape (J,), float64


def _names_of(queues: QueueTree) -> dict[str, dict[str, None]]:
    """Return the names that exist at a site, by kind of contradiction, in the site's order."""
    tree = queues.names()
    if not queues.partitions:
        return {"partitions": tree}
    return {
        "partitions": {part.name: None for part in queues.partitions},
        "accounts": tree,
        "qos": {qos.name: None for qos in queues.qos},
        "reservations": {reservation.name: None for reservation in queues.reservations},
    }


def _users_of(queues: QueueTree) -> Mapping[str, Collection[str]]:
    """Return the users of each account at a site whose scheduler lists all users."""
    listed = services.listed_users.offered()
    return {} if listed is None else listed(queues)


def _asked(reason: Excess) -> float:
    return reason.asked
