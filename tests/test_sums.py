"""Sums of floats are equal to the last bit on every Python."""

from __future__ import annotations

import ast
from pathlib import Path

import dagsim

PACKAGE = Path(dagsim.__file__).parent
WHOLE_NUMBERS = {
    "traces/chunks.py": {"sum(map(len, columns))"},
    "traces/catalogue.py": {"sum(size for size in sizes if size is not None)"},
    "traces/export.py": {
        "sum(int(node.cpus) for node in cluster.nodes)",
        "sum(node.gpus for node in cluster.nodes)",
    },
    "families/formats/google2019.py": {"sum(value >= least for least in (100, 116, 120, 360))"},
    "families/kubernetes/kube/objects.py": {
        "sum( taint.effect in effects and not any(toleration.tolerates(taint) for toleration in tolerations) "
        "for taint in self.taints )"
    },
    "families/kubernetes/kueue_site.py": {
        "sum(record.count * (record.demand.gpus + 1) for record in records if record.demand.on_gpu)",
        "sum(queue in local_queues for queue in queues)",
    },
    "families/kubernetes/kubectl.py": {
        "sum(not entry.piece.is_workload for entry in current)",
        "sum(not entry.piece.is_workload for entry in pieces)",
        "sum(piece.count for piece in pieces)",
    },
    "traces/batch.py": {"sum(counts)"},
    "families/pbs/pbs_jobs.py": {
        "sum( int(last) - int(first) + 1 for first, dash, last in ranges_ if dash and (first + last).isdecimal() )",
        "sum(chunk.pieces for chunk in parsed)",
        'sum(chunk.pieces * chunk.gpus for chunk in map(_chunk, chunks.split("+")))',
        "sum(not dash for _, dash, _ in ranges_)",
    },
    "families/formats/wfcommons.py": {
        "sum(other in ids for other in called)",
        "sum(other in known for other in called)",
    },
    "families/formats/philly.py": {"sum(len(gpus) for gpus in lists if isinstance(gpus, list))"},
    "families/slurm/sacct.py": {"sum(count for _, count in taken.slices)", "sum(size for _, size in allocated.types)"},
    "families/kubernetes/pods.py": {
        "sum(count for _, count in domains)",
        "sum(whole_gpus(taken.get(name, 0)) for name in WHOLE_GPUS)",
    },
    "families/capacity/whatif.py": {"sum(count for count, _ in groups)"},
    "families/site/node_lists.py": {
        "sum(group.name.startswith(label) for group in imported.groups)",
        "sum(size for _, size in node.gpus)",
    },
    "families/site/site_import.py": {"sum(origin_s + job.arrival_s > written_s for job in jobs)"},
    "families/slurm/accounting.py": {
        'sum(_count(value) for name, value in listed.items() if f"{name}:".startswith("gres/shard:"))',
        "sum(slices.values())",
        "sum(types.values())",
    },
    "families/slurm/slurm_site.py": {"sum(listed.values())", "sum(size for _, size in stated)"},
    "traces/times.py": {
        "sum(folds)",
        "sum(later < earlier for earlier, later in pairwise(known))",
        "sum(way[0][0] == best[0][0] for way in ways.values())",
    },
    "traces/source.py": {
        "sum(byte < 9 or 13 < byte < 32 for byte in start)",
        "sum(file.stat().st_size for file in files)",
    },
    "workload/arrays.py": {
        "sum( column.nbytes for column in (getattr(self, name) for name in self.__slots__) "
        'if hasattr(column, "nbytes") )'
    },
    "workload/fitting.py": {"sum(count for _, count in common)", "sum(demand[4] for demand in mine)"},
    "workload/info.py": {"sum(self.instances)"},
    "workload/load.py": {"sum(single)"},
    "families/learning/mixture.py": {"sum(node.gpus for node in cluster.nodes if node.gpu == gpu)"},
    "metrics/incomplete.py": {
        'sum(run["count"] for run in runs)',
        'sum(run["jobs"] for run in runs)',
        "sum(reason.count for reason in reasons)",
    },
    "metrics/lanes.py": {"sum(1 << slot % int(lanes.count[node]) for slot in slots)"},
    "metrics/standings.py": {
        'sum(int(line.metrics.get("jobs_unfinished", 0)) for line in by_policy[policy].values())',
        "sum(map(not_done, by_policy[policy].values()))",
    },
}
"""Calls of ``sum`` over whole numbers, by file. From Python 3.12 on, ``sum`` compensates for the rounding of floats, so
they are added by ``ordered_sum``; a call that is new here must be checked to add whole numbers only."""


def sums_in(path: Path) -> set[str]:
    text = path.read_text()
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    sums = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "sum")
    return {" ".join((ast.get_source_segment(text, call) or "").split()) for call in sums}


def test_readers_workloads_and_metrics_add_floats_in_order() -> None:
    files = [file for folder in ("traces", "workload", "metrics") for file in sorted((PACKAGE / folder).rglob("*.py"))]
    files += [file for file in sorted((PACKAGE / "families").rglob("*.py")) if "dagsim.traces." in file.read_text()]
    calls = {file.relative_to(PACKAGE).as_posix(): sums for file in files if (sums := sums_in(file))}
    assert calls == {name: sums for name, sums in WHOLE_NUMBERS.items() if (PACKAGE / name).is_file()}
