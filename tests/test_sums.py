"""Sums of floats are equal to the last bit on every Python."""

from __future__ import annotations

import ast
from pathlib import Path

import dagsim

PACKAGE = Path(dagsim.__file__).parent
WHOLE_NUMBERS = {
    "experiment/sizing.py": {"sum(gpus.values())"},
    "families/benchmark/bench.py": {
        'sum( max(not_done(mine) - not_done(other), 0) for mine, other in zip(by_role["entry"], by_'
    },
    "families/benchmark/rltune.py": {"sum(t.gpus * t.instances for t in job.graph.tasks)"},
    "families/capacity/machines.py": {"sum(_gpus(group, gpus.type) for group in chosen)"},
    "families/capacity/size_search.py": {"sum(group.count * group.gpus for group in cluster.groups)", "sum(nodes)"},
    "families/capacity/whatif.py": {"sum(count for count, _ in groups)"},
    "families/elastic/profiles.py": {"sum(placement)"},
    "families/elastic/resizing.py": {"sum(count for _, count in held)", "sum(one.free.values())"},
    "families/elastic/tasks.py": {"sum(gpus)"},
    "families/elastic/training_jobs.py": {"sum(placement)", "sum(self.placement)"},
    "families/episodes/side_by_side.py": {
        "sum(1 + (value.ndim if isinstance(value, np.ndarray) else 0) for value in _example().state"
    },
    "families/fabric/max_min.py": {"sum([_streams(flow, link) for flow in flows])"},
    "families/fabric/topology_policies.py": {
        "sum(_instances(left[node], demand) for node in within)",
        "sum(room for room, _ in rooms)",
    },
    "families/fabric/usage.py": {"sum(held.values())"},
    "families/forecast/backtest.py": {'sum( kind == "never" and name in started for name, kind in silent.items() )'},
    "families/kubernetes/kube/cycle.py": {"sum(bound.priority + _BEYOND for bound in pods)"},
    "families/kubernetes/kube/kube_default.py": {"sum(taken.values())"},
    "families/kubernetes/kube/node_columns.py": {
        "sum(bound.pod.requests.get(name, 0) for bound in bound_pods.values())"
    },
    "families/kubernetes/kube/objects.py": {
        "sum( taint.effect in effects and not any(toleration.tolerates(taint) for toleration in tol"
    },
    "families/kubernetes/kube/plugins.py": {"sum(weight for weight, term in preferred if node.selected((term,)))"},
    "families/kubernetes/kueue/engine.py": {"sum(spare)"},
    "families/kubernetes/kueue/kueue_policy.py": {"sum(count for _, count in domains)"},
    "families/kubernetes/kueue/quota_waits.py": {
        "sum(self._of_type[type_] for type_ in self._with_quota(task) or task.demand.types)"
    },
    "families/kubernetes/kueue_site.py": {
        "sum(record.count * (record.demand.gpus + 1) for record in records if record.demand.on_gpu)"
    },
    "families/kubernetes/pods.py": {
        "sum(count for _, count in domains)",
        "sum(whole_gpus(taken.get(name, 0)) for name in WHOLE_GPUS)",
    },
    "families/learning/cluster_rewards.py": {"sum(node.gpus for node in schedule.cluster.nodes)"},
    "families/learning/codecs/candidates.py": {"sum(pool.area)"},
    "families/learning/codecs/relative.py": {"sum(pool.area)"},
    "families/learning/mixture.py": {"sum(node.gpus for node in cluster.nodes if node.gpu == gpu)"},
    "families/pac_ml/partition_env.py": {
        "sum(outcome.started and outcome.completed_s is None for outcome in kernel.outcomes)"
    },
    "families/pbs/pbs_jobs.py": {
        'sum(chunk.pieces * chunk.gpus for chunk in map(_chunk, chunks.split("+")))',
        "sum(chunk.pieces for chunk in chunks)",
        "sum(chunk.pieces for chunk in parsed)",
    },
    "families/ramp/partition.py": {
        "sum(count * (count - 1) for count in self.splits)",
        "sum(self.pieces)",
        "sum(self.pieces[edge.source] * self.pieces[edge.target] for edge in self.edges)",
    },
    "families/ramp/topology.py": {"sum(at * step for at, step in zip(place, steps, strict=True))", "sum(lengths)"},
    "families/site/node_lists.py": {
        "sum(group.name.startswith(label) for group in imported.groups)",
        "sum(size for _, size in node.gpus)",
    },
    "families/slurm/accounting.py": {
        'sum(_count(value) for name, value in listed.items() if f"{name}:".startswith("gres/shard:"',
        "sum(slices.values())",
        "sum(types.values())",
    },
    "families/slurm/sacct.py": {"sum(count for _, count in taken.slices)", "sum(size for _, size in allocated.types)"},
    "families/slurm/scheduler/slurm_rules.py": {
        "sum([min(count, 1) for count in rooms] if distinct else rooms)",
        "sum(self.of_type[type_] for type_ in demand.types)",
    },
    "families/slurm/slurm_site.py": {"sum(listed.values())", "sum(size for _, size in stated)"},
    "families/slurm/scheduler/slurm_times.py": {
        "sum(1 if spread else room[node] for node in block)",
        "sum(free[node] for node in block)",
        "sum(room[node] for node in bits(nodes))",
    },
    "families/spark/policies.py": {"sum(map(_wants, view.jobs))"},
    "families/spark/schedule.py": {"sum(stage.tasks - stage.remaining for job in self.jobs for stage in job.stages)"},
    "families/spark/spark_job.py": {"sum(duration.tasks for duration in self.durations)"},
    "families/tiresias/simulator.py": {
        "sum(machine.gpus for machine in view.machines.list if machine.up)",
        "sum(task.gpus for task in self._tasks.values() if task.order in chosen)",
    },
    "families/web/wait_sections.py": {
        'sum(line.metrics.get("jobs_arrived") or 0 for line in lines)',
        "sum(line.metrics.get(name) or 0 for line in lines)",
    },
    "metrics/incomplete.py": {'sum(run["count"] for run in runs)', 'sum(run["jobs"] for run in runs)'},
    "metrics/standings.py": {"sum(map(not_done, by_policy[policy].values()))"},
    "model/cluster.py": {"sum(node.gpus for node in self.nodes)"},
    "model/mig.py": {"sum([self.profiles[part.profile].mask(part.start) for part in layout if part.busy])"},
    "report/grid.py": {"sum(widths)"},
    "report/plots/workload.py": {"sum(counts.values())", "sum(shown.values())"},
    "report/tables.py": {
        'sum(key.startswith("tenant[") and key.endswith(".arrived") for key in line.metrics)',
        'sum(state.get("elsewhere", 0) for state in first)',
        'sum(state.get("unplaced", 0) for state in first)',
        "sum(state[key] for state in first)",
    },
    "systems/cluster/audit.py": {
        "sum((group.mask & domain).bit_count() * rooms[id(group)] for group in able if group.machin"
    },
    "systems/cluster/free_index.py": {"sum(bit for bit, there in free if there >= amount)"},
    "systems/cluster/jobs.py": {
        "sum(running)",
        "sum(runs and not names for runs, names in zip(running, named, strict=True))",
    },
    "systems/cluster/knowledge.py": {"sum(of[name] for of in facts)"},
    "systems/cluster/nodes.py": {"sum([self.room_on(gpu, demand) for gpu in range(self.gpus)])"},
    "systems/cluster/past_of_log.py": {"sum(count for _, count in room)", "sum(counts)"},
    "systems/cluster/policies/backfilling.py": {
        "sum(machine.cpus for machine in up)",
        "sum(machine.memory for machine in up)",
        "sum(on_node for machine, on_node, *_ in run.held if nodes >> machine.index & 1)",
    },
    "systems/cluster/policies/batch_mode.py": {
        "sum(instances for machine, instances, *_ in run.held if nodes >> machine.index & 1)",
        "sum(one.cpus for one in there)",
        "sum(machines.idle_gpus(type_) for type_ in types)",
    },
    "systems/cluster/policies/conservative.py": {
        "sum(machine.cpus for machine in nodes)",
        "sum(machine.memory for machine in nodes)",
        "sum(part.nodes for part, share in shares if any(share))",
    },
    "systems/cluster/policies/placement.py": {
        "sum([share for share in shares if share < least])",
        "sum(machine.shares.values())",
        "sum(room.values())",
    },
    "systems/cluster/policies/planners.py": {
        "sum(begin <= start < end and start + seconds <= end for begin, end in fitting)"
    },
    "systems/cluster/policies/power.py": {"sum(self._machines.capacity(demand, type_) for type_ in demand.types)"},
    "systems/cluster/policies/shares.py": {"sum(n.gpus for n in nodes)"},
    "systems/cluster/site.py": {"sum(bits)", "sum(wanted)"},
    "systems/cluster/transfers.py": {"sum(count for _, count in state)"},
    "systems/cluster/waits.py": {
        "sum(now.shares.values())",
        "sum(sums[place, type_, domain][at] for place in places if (place, type_, domain) in sums)",
    },
    "testing/contract.py": {"sum(sizes)"},
    "traces/batch.py": {"sum(counts)"},
    "traces/catalogue.py": {"sum(size for size in sizes if size is not None)"},
    "traces/export.py": {"sum(node.gpus for node in cluster.nodes)"},
    "traces/source.py": {
        "sum(byte < 9 or 13 < byte < 32 for byte in start)",
        "sum(file.stat().st_size for file in files)",
    },
    "traces/times.py": {"sum(folds)"},
    "workload/arrays.py": {
        "sum( column.nbytes for column in (getattr(self, name) for name in self.__slots__) if hasat"
    },
    "workload/fitting.py": {"sum(count for _, count in common)", "sum(demand[4] for demand in mine)"},
    "workload/info.py": {"sum(self.instances)"},
    "workload/load.py": {"sum(single)"},
}
"""Calls of ``sum`` over whole numbers, by file. From Python 3.12 on, ``sum`` compensates for the rounding of floats, so
they are added by ``ordered_sum``; a call that is new here must be checked to add whole numbers only."""


COUNTS = {"instances", "bit", "idle", "ranks", "bit_count", "executing", "remaining", "count"}
"""Attributes of dagsim that are whole numbers."""


def whole(term: ast.expr) -> bool:
    """True if an expression can only be a whole number."""
    match term:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=int()):
            return True
        case ast.BinOp(op=ast.LShift() | ast.RShift() | ast.BitAnd() | ast.FloorDiv()):
            return True
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() | ast.Mult()):
            return whole(left) and whole(right)
        case ast.Call(func=ast.Name(id="len" | "int" | "bool" | "bisect_left")):
            return True
        case ast.Call(func=ast.Attribute(attr="bit_count" | "room")):
            return True
        case ast.Attribute(attr=name):
            return name in COUNTS
    return False


def sums_in(path: Path) -> set[str]:
    """The calls of ``sum`` whose terms may be floats, by their first 90 characters."""
    text = path.read_text()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    sums = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "sum"]
    doubtful = []
    for call in sums:
        match call.args[0]:
            case ast.GeneratorExp(elt=term) | ast.ListComp(elt=term):
                known = whole(term)
            case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id="len"), *_]):
                known = True
            case _:
                known = False
        if not known:
            doubtful.append(call)
    return {" ".join((ast.get_source_segment(text, call) or "").split())[:90] for call in doubtful}


def test_the_package_adds_floats_in_order() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    calls = {file.relative_to(PACKAGE).as_posix(): sums for file in files if (sums := sums_in(file))}
    assert calls == {name: sums for name, sums in WHOLE_NUMBERS.items() if (PACKAGE / name).is_file()}
