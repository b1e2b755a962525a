"""The rules at a Slurm site: which nodes, time limits and counted limits apply to each job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from math import inf
from operator import and_, or_
from typing import Any, NamedTuple

from dagsim.families.slurm.scheduler.holdings import SLACK, Amounts, Holder, Holdings, PastUse, of_nodes
from dagsim.families.slurm.scheduler.node_choice import CountedNodes, NodeLayout, TimedGroups
from dagsim.model import Caps, Demand, Job, JobCaps, NodePartition, Qos, QueueTree
from dagsim.model.arithmetic import bits, ordered_sum, whole_sum
from dagsim.systems.cluster.api import ClusterState, ClusterView, Excess, JobState, TaskState, may_mix_types, members

RESOURCES = {"gpus": "GRES", "cpus": "Cpu", "memory_gb": "Memory", "jobs": "Jobs", "nodes": "Node"}
RESOURCES |= {f"{name} minutes": f"{word}Minutes" for name, word in RESOURCES.items()}
"""Resources in Slurm's names for limits."""


class NodesOfTypes(NamedTuple):
    """A bit set of nodes, and the types of these nodes."""

    nodes: int
    types: tuple[int, ...]


class SlurmRules:
    """The partitions, QOS and limits in ``view.queues``, as they apply to each job. The object can
    be deep-copied."""

    def __init__(self, view: ClusterView, *, kill: str, distinct: bool, safe: bool = True) -> None:
        self._queues = queues = view.queues or QueueTree()
        self.partitions = {part.name: part for part in queues.partitions} or {"": NodePartition("")}
        self.qos = {qos.name: qos for qos in queues.qos} or {"": Qos("")}
        self.holdings = Holdings(safe=safe)
        names = [node.name for node in view.cluster.nodes]
        self.nodes = {part.name: members(part, names) for part in self.partitions.values()}
        """The nodes of each partition, as a bit set."""
        self.of_type = [0] * len(view.gpu_types)
        for machine in view.machines.list:
            self.of_type[machine.type] |= machine.bit
        self.gpu_names = [gpu.name if gpu is not None else "" for gpu in view.gpu_types]
        """The name of each GPU type."""
        self._all = (1 << len(view.machines.list)) - 1
        self._machines = view.cluster.nodes
        self._kill, self._distinct = kill, distinct
        self._counts_time = any(caps.minutes for caps in _all_caps(queues)) or any(
            caps.minutes for caps in _all_job_caps(queues)
        )
        """True if any limit counts resources times minutes."""
        self._above: dict[str, tuple[str, ...]] = {}
        self._per_user: dict[str, Caps] = {}
        self._of_user: dict[tuple[str, str], Caps] = {}
        """Limits of users by account and name, which replace the limits of all users."""
        self._job_caps = {(node.name, ""): node.job_limits for node, _ in queues.walk() if node.job_limits}
        self._job_caps |= {
            (node.name, user): caps for node, _ in queues.walk() for user, caps in node.job_limits_of.items()
        }
        """Limits of one job, by account and user; an empty user stands for all users without limits
        of their own.
        """
        self._limit(queues)
        self._bars = any(_all_job_caps(queues)) or any(
            part.accounts or part.denied_accounts or part.allowed_qos or part.denied_qos for part in queues.partitions
        )
        """True if some rule depends only on the job, whatever is running."""
        self.refuses_accounts = any(part.accounts or part.denied_accounts for part in queues.partitions)
        """True if any partition refuses some accounts."""
        self._holders: dict[tuple[str, str, str, str, str], tuple[Holder, ...]] = {}
        self._limited: set[tuple[str, str, str, str]] = set()
        """The account, user, partition and QOS of jobs whose user's limits are set."""
        self._times: dict[int, list[list[tuple[float, float]]]] = {}
        """For each job and task, by type: the time limit, and the seconds until it is killed."""
        self._checked: set[int] = set()
        self._possible: dict[tuple[Demand, int, int, bool, tuple[Any, ...]], bool] = {}
        self._empty: ClusterState | None = None
        self._groups: dict[tuple[tuple[int, ...], bool], tuple[NodesOfTypes, ...]] = {}
        self._parts: dict[int, tuple[NodePartition, ...]] = {}
        self._claims: dict[int, dict[tuple[int, str, str], tuple[tuple[Holder, ...], Amounts]]] = {}

    def partition(self, job: JobState) -> NodePartition:
        """Return the partition that the job names, or else the first partition."""
        return self.partitions.get(job.job.partition) or next(iter(self.partitions.values()))

    def quality(self, job: JobState) -> Qos:
        """Return the QOS that the job names, or else the first QOS."""
        return self.qos.get(job.job.qos) or next(iter(self.qos.values()))

    def amounts(self, task: TaskState) -> Amounts:
        """Return the amounts that one start of the task takes. A start is a whole gang, or a single
        instance.
        """
        gpus, cpus, memory_gb, _ = task.demand.demand
        count = task.demand.gang or 1
        fewest = self.fewest_nodes(task)
        nodes = float(fewest) if fewest > 1 or self.spread(task.job) else 0.0
        limit_s = self.limit_s(task, task.demand.types[0]) if self._counts_time else 0.0
        return Amounts(gpus * count, cpus * count, memory_gb * count, 1.0, nodes, limit_s)

    def parts(self, job: JobState) -> tuple[NodePartition, ...]:
        """Return all partitions in which the job may run."""
        parts = self._parts.get(job.number)
        if parts is None:
            request = job.job.request
            names = request.partitions if request is not None else ()
            listed = tuple([self.partitions[name] for name in names if name in self.partitions])
            parts = self._parts[job.number] = listed or (self.partition(job),)
        return parts

    def has(self, part: NodePartition, nodes: Iterable[int]) -> bool:
        """Return True if a partition contains all of these nodes."""
        return all(self.nodes[part.name] >> node & 1 for node in nodes)

    def claim(self, task: TaskState, part: NodePartition, gpu: str) -> tuple[tuple[Holder, ...], Amounts]:
        """Return the holders whose limits count a start of the task, and the amounts that the start
        takes. The result is cached per job.
        """
        claims = self._claims.setdefault(task.job.number, {})
        key = task.index, part.name, gpu
        if key not in claims:
            claims[key] = self.holders(task.job, part, gpu), self.least(task, part)
        return claims[key]

    def least(self, task: TaskState, part: NodePartition) -> Amounts:
        """Return the smallest amounts that one start of the task may take. A job that does not
        share nodes takes all resources of the smallest nodes that it may use."""
        amounts = self.amounts(task)
        if part.exclusive or not self.alone(task.job, part):
            return amounts
        nodes = self.nodes[part.name] & reduce(or_, [group.nodes for group in self.groups(task)])
        if task.demand.terms is not None:
            nodes &= task.demand.terms.nodes
        count = self.fewest_nodes(task)
        usable = [self._machines[node] for node in bits(nodes)]
        whole = of_nodes(amounts, sorted(usable, key=lambda node: node.cpus)[:count])
        gpus = ordered_sum(sorted([node.gpus for node in usable])[:count])
        return Amounts(*[max(pair) for pair in zip(amounts, whole._replace(gpus=gpus), strict=True)])

    def alone(self, job: JobState, part: NodePartition) -> bool:
        """Return True if the job shares its nodes with no other job."""
        return part.exclusive or (job.job.request is not None and job.job.request.exclusive)

    def by_user(self, job: JobState) -> bool:
        """Return True if the job shares its nodes only with other jobs of its user."""
        return job.job.request is not None and job.job.request.exclusive_user

    def spread(self, job: JobState) -> bool:
        """Return True if each instance in a gang takes a node of its own."""
        request = job.job.request
        return self._distinct if request is None or request.spread is None else request.spread

    def fewest_nodes(self, task: TaskState) -> int:
        """Return the smallest number of nodes on which a start of the task may run."""
        if self.spread(task.job):
            return task.demand.gang or 1
        request = task.job.job.request
        return (request and request.least_nodes) or 1

    def layout(self, task: TaskState, part: NodePartition) -> NodeLayout:
        """Return how a start in a partition distributes its instances over nodes."""
        request = task.job.job.request
        limits = part.job_limits.nodes, None if request is None else request.most_nodes
        most = min([int(limit) for limit in limits if limit is not None], default=None)
        spread = self.spread(task.job)
        return NodeLayout(spread, self.shares(task), part.spreads, 1 if spread else self.fewest_nodes(task), most)

    def holders(self, job: JobState, part: NodePartition | None = None, gpu: str = "") -> tuple[Holder, ...]:
        """Return all holders whose limits count a job that runs in one of its partitions, on GPUs
        of the type ``gpu``.
        """
        where, qos = part or self.partition(job), self.quality(job).name
        account, user = account_of(job), user_of(job)
        key = account, user, where.name, qos, gpu
        limited = self._holders.get(key)
        if limited is None:
            holders: list[Holder] = [("partition", where.name)]
            for name in self._above.get(account, (account,)):
                holders += [("account", name), ("user", name, user)]
            for name in dict.fromkeys([qos, where.qos or qos]):
                holders += [("qos", name), ("qos user", name, user), ("qos account", name, account)]
            self._limit_user_of(job, where)
            holders += [("gpus", gpu, *holder) for holder in holders if gpu]
            limited = self._holders[key] = tuple([holder for holder in holders if holder in self.holdings.most])
        return limited

    def is_new(self, job: JobState) -> bool:
        """Return True in the first call with this job, and False in later calls."""
        is_new = job.number not in self._checked
        self._checked.add(job.number)
        return is_new

    def learn(self, view: ClusterView, job: JobState) -> None:
        """Record the time limits of a job's tasks."""
        if job.number in self._times:
            return
        most_s = self._queues.time_limits(job.job).most_s
        times = []
        for task in job.tasks:
            row = []
            requested = view.requested_s(task) or [inf] * len(task.seconds)
            for asked_s, requested_s in zip(task.seconds, requested, strict=True):
                kill_s = {"partition": most_s, "limit": min(most_s, requested_s), "never": inf}[self._kill]
                row.append((min(asked_s, most_s), kill_s))
            times.append(row)
        self._times[job.number] = times

    def limit_s(self, task: TaskState, type_: int) -> float:
        """Return the task's time limit on a GPU type. If the task has no limit, return its
        estimate."""
        times = self._times.get(task.job.number)
        return times[task.index][type_][0] if times else task.seconds[type_]

    def longest_s(self, task: TaskState, types: tuple[int, ...]) -> float:
        """Return the task's longest time limit on these types."""
        limit_s = self.limit_s
        return limit_s(task, types[0]) if len(types) == 1 else max([limit_s(task, type_) for type_ in types])

    def kill_s(self, task: TaskState, type_: int) -> float:
        """Return the run time in seconds after which the task is killed if it runs on this type."""
        times = self._times.get(task.job.number)
        return times[task.index][type_][1] if times else inf

    def forget(self, job: int) -> None:
        """Drop all stored data of a job that has left."""
        self._checked.discard(job)
        for kept in (self._times, self._parts, self._claims):
            kept.pop(job, None)

    def admits(self, view: ClusterView, job: JobState) -> bool:
        """Return True if limits and partitions allow each of the job's tasks to start at some
        time."""
        return all(
            any(
                self.holdings.ever(self.holders(job, part, gpu), self.least(task, part))
                and self.holds(view, task, nodes)
                and not any(self.barred(task, part))
                for part, gpu, nodes in self.ways(view, task)
            )
            for task in job.tasks
        )

    def barred(self, task: TaskState, part: NodePartition) -> Iterator[str]:
        """Describe the rules that a task breaks in a partition, with Slurm's names. Only the rules
        of the partition, the QOS and the account for single jobs are examined.
        """
        if not self._bars:
            return
        job = task.job.job
        if refusal := self.refusal(job, part):
            yield refusal
        if job.qos:
            if part.allowed_qos and job.qos not in part.allowed_qos:
                yield f"AllowQos ({', '.join(part.allowed_qos)}) without {job.qos}: the partition {part.name}"
            elif not part.allowed_qos and job.qos in part.denied_qos:
                yield f"DenyQos ({job.qos}): the partition {part.name}"
        amounts = self.least(task, part)._asdict()
        amounts["nodes"] = float(self.fewest_nodes(task))
        caps: list[tuple[str, str, JobCaps]] = [("Partition", f"the partition {part.name}", part.job_limits)]
        for qos in dict.fromkeys((self.quality(task.job).name, part.qos)):
            caps += [("QOS", f"the QOS {qos}", self.qos[qos].job_limits)] if qos in self.qos else []
        account, user = account_of(task.job), user_of(task.job)
        for name in self._above.get(account, (account,)):
            for whose, words in ((user, f"the user {user} in the account {name}"), ("", f"the account {name}")):
                if limits := self._job_caps.get((name, whose)):
                    caps.append(("Assoc", words, limits))
                    break
        for owner, words, limits in caps:
            for what, limit in limits.amounts().items():
                if amounts[what] > limit + SLACK:
                    reason = f"{owner}Max{RESOURCES[what]}PerJob"
                    reason = "PartitionNodeLimit" if (owner, what) == ("Partition", "nodes") else reason
                    yield Excess.of(f"{reason} ({limit:,g}) < ", amounts[what], f": {words}")
            for what, limit in limits.minutes.items():
                if (asked := amounts[what] * amounts["limit_s"] / 60) > limit + SLACK:
                    yield Excess.of(f"{owner}Max{RESOURCES[what]}MinutesPerJob ({limit:,g}) < ", asked, f": {words}")

    def refusal(self, job: Job, part: NodePartition) -> str:
        """Describe why a partition refuses the account of a job. The text is empty if the partition
        accepts the account.
        """
        line = self._above.get(job.account, (job.account,)) if job.account else ()
        if line and part.accounts and not any(name in part.accounts for name in line):
            return f"AllowAccounts ({', '.join(part.accounts)}) without {job.account}: the partition {part.name}"
        denied = [] if part.accounts else [name for name in line if name in part.denied_accounts]
        return f"DenyAccounts ({denied[0]}): the partition {part.name}" if denied else ""

    def is_refused(self, job: Job) -> bool:
        """Return True if any of a job's partitions refuses its account."""
        named = (job.request.partitions if job.request is not None else ()) or (job.partition,)
        return any(self.refusal(job, self.partitions[name]) for name in named if name in self.partitions)

    def ways(self, view: ClusterView, task: TaskState) -> Iterator[tuple[NodePartition, str, int]]:
        """Yield each way in which a task may start: a partition, a GPU type (or an empty text if
        limits do not depend on types), and nodes.
        """
        for part in self.parts(task.job):
            nodes = self.nodes[part.name]
            self._limit_user_of(task.job, part)
            if not (self.holdings.limits_types and task.demand.demand.gpus):
                yield part, "", nodes
                continue
            for type_ in task.demand.types:
                gpu = view.gpu_types[type_]
                yield part, "" if gpu is None else gpu.name, nodes & self.of_type[type_]

    def holds(self, view: ClusterView, task: TaskState, nodes: int) -> bool:
        """Return True if a start of the task would fit on the nodes if they were empty."""
        demand = task.demand
        distinct = bool(self.spread(task.job) and demand.gang)
        shares, fewest = self.shares(task), self.fewest_nodes(task)
        if nodes == self._all and not distinct and not shares and fewest == 1:
            # Nothing restricts the task, so it fits on the empty cluster. Otherwise, the kernel
            # would have rejected it.
            return True
        if demand.terms is not None:
            nodes &= demand.terms.nodes
        domains = () if demand.terms is None else demand.terms.domains
        key = (demand.demand, demand.gang, nodes, distinct, (fewest, *domains, *shares))
        if key not in self._possible:
            self._possible[key] = False
            if self._empty is None:
                self._empty = ClusterState(view.cluster)
            empty = self._empty.compile(demand.demand, demand.gang)
            for group in self.groups(task):
                listed = [view.machines.list[node] for node in bits(nodes & group.nodes)]
                rooms = [machine.emptied().room(empty) for machine in listed]
                room = whole_sum([min(count, 1) for count in rooms] if distinct else rooms)
                able = sum([machine.bit for machine, count in zip(listed, rooms, strict=True) if count])
                shared = all((able & share).bit_count() >= count for share, count in ((able, fewest), *shares))
                self._possible[key] = self._possible[key] or (shared and room >= (demand.gang or 1))
        return self._possible[key]

    def groups(self, task: TaskState) -> tuple[NodesOfTypes, ...]:
        """Return the sets of nodes from which a start of the task may take its nodes, each with its
        GPU types. Each set has a single GPU type, except for batch jobs and for starts on one node
        without GPUs, which may take any nodes.
        """
        demand = task.demand
        mixes = may_mix_types(task.job.job, demand.demand) or not (demand.demand.gpus or demand.gang)
        groups = self._groups.get((demand.types, mixes))
        if groups is None:
            by_type = [NodesOfTypes(self.of_type[type_], (type_,)) for type_ in demand.types]
            joined = (NodesOfTypes(whole_sum(self.of_type[type_] for type_ in demand.types), demand.types),)
            groups = self._groups[demand.types, mixes] = joined if mixes else tuple(by_type)
        # Split the groups, because all nodes must be in one domain (or in one alternative of the
        # constraint).
        if demand.bound and demand.terms is not None:
            return tuple(
                [group._replace(nodes=group.nodes & domain) for group in groups for domain in demand.terms.domains]
            )
        return groups

    def shares(self, task: TaskState) -> tuple[CountedNodes, ...]:
        """Return sets of nodes, each with the minimum number of its nodes that a start must
        include. The sets are the nodes that the job names, and the nodes that its constraint
        counts.
        """
        terms = task.demand.terms
        if terms is None:
            return ()
        counts = terms.counts if task.demand.gang else ()
        counted = [CountedNodes(count.nodes, count.least) for count in counts]
        if task.demand.gang == 1 and len(counted) > 1:  # the task uses a single node, which has to meet all conditions
            counted = [CountedNodes(reduce(and_, [nodes for nodes, _ in counted]), 1)]
        return (*[CountedNodes(1 << node, 1) for node in bits(terms.named)], *counted)

    def counts(self, task: TaskState) -> tuple[CountedNodes, ...]:
        """Return one entry for each feature that a gang's constraint counts: the nodes with that
        feature, and the number of instances for which backfill searches there. The number is the
        total for all instances. For jobs with GPUs, it is the number of counted nodes, because such
        jobs rarely state how many tasks run on a node.
        """
        terms, demand = task.demand.terms, task.demand
        if terms is None or not demand.gang:
            return ()
        gpus = bool(demand.demand.gpus)
        return tuple([CountedNodes(count.nodes, count.least if gpus else demand.gang) for count in terms.counts])

    def questions(self, task: TaskState, part: NodePartition) -> tuple[TimedGroups, ...]:
        """Return the groups of nodes among which backfill searches for the start of a task, with
        the time limit of the task on each group."""
        of_part = self.nodes[part.name]
        groups = [(self.longest_s(task, group.types), of_part & group.nodes) for group in self.groups(task)]
        # if all groups have the same limit, one search is enough
        if not task.demand.gang and all(limit_s == groups[0][0] for limit_s, _ in groups):
            return (TimedGroups(float(groups[0][0]), tuple([nodes for _, nodes in groups])),)
        return tuple([TimedGroups(float(limit_s), (nodes,)) for limit_s, nodes in groups])

    def remember(self, past: Iterable[PastUse]) -> None:
        """Count usage that happened before the simulation began against the budgets."""
        for use in past:
            holders: list[Holder] = [("partition", use.partition)]
            for name in self._above.get(use.account, (use.account,)):
                holders += [("account", name), ("user", name, use.user)]
            holders += [("qos", use.qos), ("qos user", use.qos, use.user), ("qos account", use.qos, use.account)]
            self._limit_users(use.account, use.user, use.qos)
            for holder in holders:
                if (budget := self.holdings.budgets.get(holder)) is not None:
                    budget.remember(use)

    def named(self, task: TaskState) -> int:
        """Return the nodes that the job requests by name, as a bit set. Return 0 if the job also
        needs other nodes.
        """
        request = task.job.job.request
        if request is None or not request.nodes:
            return 0
        nodes = sum([1 << at for at, node in enumerate(self._machines) if node.name in request.nodes])
        return nodes if nodes.bit_count() >= self.fewest_nodes(task) else 0

    def off_limits(self, view: ClusterView, jobs: Iterable[tuple[TaskState, NodePartition]]) -> int:
        """Return the nodes on which the main loop starts nothing, because some of the ``jobs`` are
        attracted by magnetic reservations that have not begun. Slurm tests such a job within the
        reservation first, and finds that the reservation is not usable yet. For the rest of the
        loop, it then gives the nodes of the reservation and the nodes that the job names to no job
        (``ESLURM_RESERVATION_NOT_USABLE`` in job_scheduler.c). Slurm does not test heterogeneous
        jobs in this way, nor jobs that need more nodes than the reservation has in their partition.
        """
        site, off = view.machines.site, 0
        if site is None or not site.magnets:
            return 0
        for task, part in jobs:
            if not task.waiting:
                continue
            for number in magnets(task):
                period = site.held(number, view.now)
                if period is None or not period.known_s <= view.now < period.start_s:
                    continue
                if (period.nodes & self.nodes[part.name]).bit_count() >= self.fewest_nodes(task):
                    off |= period.nodes | self.named(task)
        return off

    def _limit(self, queues: QueueTree) -> None:
        for node, above in queues.walk():
            self._above[node.name] = (node.name, *above)
            self.holdings.limit(("account", node.name), node.limits)
        for part in queues.partitions:
            self.holdings.limit(("partition", part.name), part.limits)
        for qos in queues.qos:
            self.holdings.limit(("qos", qos.name), qos.limits, decays=not qos.keeps_usage)
        self._per_user |= {node.name: node.user_limits for node, _ in queues.walk() if node.user_limits}
        self._of_user |= {(node.name, user): caps for node, _ in queues.walk() for user, caps in node.limits_of.items()}

    def _limit_user_of(self, job: JobState, part: NodePartition) -> None:
        """Set the limits of a job's user if they are not set yet for jobs in this partition."""
        qos = self.quality(job).name
        key = account_of(job), user_of(job), part.name, qos
        if key not in self._limited:
            self._limited.add(key)
            for name in dict.fromkeys([qos, part.qos or qos]):
                self._limit_users(key[0], key[1], name)

    def _limit_users(self, account: str, user: str, qos: str) -> None:
        """Set the limits of a user who is new in an account."""
        for name in self._above.get(account, (account,)):
            caps = self._of_user.get((name, user)) or self._per_user.get(name)
            if caps is not None:
                self.holdings.limit(("user", name, user), caps)
        if qos in self.qos:
            self.holdings.limit(("qos user", qos, user), self.qos[qos].user_limits)
            self.holdings.limit(("qos account", qos, account), self.qos[qos].account_limits)


def _all_caps(queues: QueueTree) -> Iterator[Caps]:
    """Yield the limits of all owners."""
    for node, _ in queues.walk():
        yield from (node.limits, node.user_limits, *node.limits_of.values())
    for part in queues.partitions:
        yield part.limits
    for qos in queues.qos:
        yield from (qos.limits, qos.user_limits, qos.account_limits)


def _all_job_caps(queues: QueueTree) -> Iterator[JobCaps]:
    """Yield the limits that all owners set for single jobs."""
    for node, _ in queues.walk():
        yield from (node.job_limits, *node.job_limits_of.values())
    yield from (part.job_limits for part in queues.partitions)
    yield from (qos.job_limits for qos in queues.qos)


def account_of(job: JobState) -> str:
    """Return a job's account. If the log has no accounts, return its tenant."""
    return job.job.account or job.job.tenant or "default"


def user_of(job: JobState) -> str:
    """Return a job's user. If the log has no users, return its tenant."""
    return job.job.user or job.job.tenant or "default"


def reserved_in(task: TaskState) -> int:
    """Return the index of the reservation in which the task has to run, or -1 if there is none."""
    terms = task.demand.terms
    return -1 if terms is None else terms.reservation


def magnets(task: TaskState) -> tuple[int, ...]:
    """Return the numbers of the magnetic reservations in which the task may start. Components of
    heterogeneous jobs may start in none of them."""
    return () if task.demand.terms is None or together(task) else task.demand.terms.welcome


def together(task: TaskState) -> str:
    """Return the common name of all tasks that must start together with this one. The result is
    empty if the task may start alone.
    """
    request = task.job.job.request
    return "" if request is None else request.together
