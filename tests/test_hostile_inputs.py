"""Text from files is text, for every reader of logs, lists of nodes, sites and configurations: whichever of their
fields is hostile, it is read as text or refused in plain words, and what is made of it is text again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import invoke
from support.hostile import FILE, HOSTILE, MARK, OPENED, assert_plain, variants

from dagsim.errors import DagsimError
from dagsim.family import family_entries
from dagsim.traces import READERS, open_trace

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "workloads" / "samples"
NUMBERS = {"alibaba2017", "pipedream", "pm100", "stg", "swf", "tpch"}
"""Formats whose jobs have numbers alone: their other texts are states, dates and comments."""


def told(*words: object) -> tuple[int, str]:
    """What a command prints. It ends well or in an error of the input, in plain lines."""
    result = invoke(*words)
    assert result.exception is None or isinstance(result.exception, SystemExit), (words, result.exception)
    assert result.exit_code in (0, 2), (words, result.output)
    assert_plain(result.output)
    return result.exit_code, result.output


def holds_hostile(text: str) -> bool:
    return any(name in text for name in (MARK, *(name for name in HOSTILE.values() if name.strip())))


def texts_of(path: Path, format: str) -> str:
    """All that a reader yields for a log, as text."""
    try:
        return "\n".join(
            "\n".join([job.id, job.tenant, job.user, job.account, job.partition, job.qos, *job.observed_nodes])
            + "\n".join(f"{task.name} {task.model} {task.manifest} {task.gpu_types}" for task in job.tasks)
            + str(job.request and [job.request.constraint, job.request.after, job.request.licences])
            for job in open_trace(path, format).jobs()
        )
    except DagsimError:
        return ""


@pytest.mark.parametrize("format", READERS.names())
def test_every_text_field_of_every_reader_is_text(format: str, tmp_path: Path) -> None:
    arrived, replayed = set(), 0
    for opened in OPENED[format]:  # a reader without an entry has no case here: add one
        top = Path(opened).parts[0]
        root = tmp_path / opened.replace("/", "-")
        shutil.copytree(SAMPLES / top, root)
        path = root / Path(*Path(opened).parts[1:])
        assert told("trace", "info", path, "--format", format, "--no-plots")[0] == 0
        if path.is_file():  # some readers name jobs by the file
            other = shutil.copy(path, path.with_name(FILE + path.suffix))
            told("trace", "info", other, "--format", format, "--no-plots")
            other.unlink()
        inside = path if path.is_dir() else path.parent
        for file in sorted(file for file in inside.rglob("*") if file.is_file()):
            whole = file.read_bytes()
            for text in variants(file):
                file.write_text(text, encoding="utf-8")
                code, output = told("trace", "info", path, "--format", format, "--no-plots")
                if code == 0 and (file == path or path.is_dir()):
                    arrived.add(holds_hostile(output) or holds_hostile(texts_of(path, format)))
                    if not replayed and True in arrived:
                        replayed += replay(path, format, tmp_path / "runs")
            file.write_bytes(whole)
    assert arrived, "nothing hostile was read"
    if format not in NUMBERS:
        assert True in arrived, "no hostile name reached a job"


def replay(path: Path, format: str, out: Path) -> bool:
    """Replay a log with hostile names, if it can be, and look at the outputs."""
    words = ("--format", format, "--cluster", "sized", "--max-jobs", "20", "--no-plots", "--seeds", "1", "--out", out)
    if told("replay", "--trace", path, *words, "--policy", "fifo")[0]:
        return False
    (run,) = out.iterdir()
    for table in ("text", "markdown", "latex"):
        told("compare", run, "--table", table)
    told("report", run, "-o", out / "page.html")
    assert not [tag for tag in ("<img", "<b>", "<script>alert") if tag in (out / "page.html").read_text()]
    return True


NODES = {
    "kubectl get nodes -o json (or yaml)": ("kubectl.json",),
    "pbsnodes": ("pbsnodes.txt",),
    "scontrol show nodes": ("scontrol.txt",),
    "scontrol show nodes --json": ("scontrol.json",),
    "sinfo -N -e -h -o '%N|%P|%t|%c|%m|%G|%f'": ("sinfo.txt",),
}
SITES: dict[str, dict[str, str]] = {
    "Slurm": {
        "slurm.conf": """ClusterName=tide
AccountingStorageEnforce=associations,limits
Licenses=solver:3
NodeName=n[1-2] Sockets=2 CoresPerSocket=4 RealMemory=65536 Feature=old Weight=5
NodeName=g1 Sockets=2 CoresPerSocket=4 RealMemory=65536 Gres=gpu:a100:2 Feature=new,nvl
PartitionName=side Nodes=n[1-2] PriorityTier=3 QOS=side
PartitionName=main Nodes=ALL Default=YES DefaultTime=30
""",
        "dump": """Cluster - 'tide':Fairshare=1:QOS='normal'
Parent - 'root'
Account - 'lab':Description='lab':Organization='lab':Fairshare=30:GrpTRES=cpu=12
Parent - 'lab'
User - 'ada':DefaultAccount='lab':Fairshare=3:MaxJobs=2
""",
        "qos.txt": """Name|Priority|Preempt|PreemptMode|Flags|UsageFactor|GrpTRES|MaxWall|MaxTRESPU|MaxJobsPU
normal|10||cluster||1.0||||
side|0||cluster||1.0||00:30:00|cpu=4|1
""",
    },
    "PBS": {
        "server": """create queue work
set queue work queue_type = Execution
set queue work max_run = [u:PBS_GENERIC=4]
set queue work enabled = True
set queue work started = True
set server scheduling = True
set server default_queue = work
set server node_fail_requeue = 310
""",
        "pbsnodes.txt": (SAMPLES / "nodes" / "pbsnodes.txt").read_text(encoding="utf-8"),
    },
    "Kueue": {
        "objects.yaml": """apiVersion: v1
kind: List
items:
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ResourceFlavor
  metadata: {name: big}
  spec: {nodeLabels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}, tolerations: [{key: spot, operator: Exists}]}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ClusterQueue
  metadata: {name: vision}
  spec:
    cohort: site
    queueingStrategy: StrictFIFO
    preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
    resourceGroups:
    - coveredResources: [cpu, nvidia.com/gpu]
      flavors:
      - name: big
        resources: [{name: cpu, nominalQuota: 16}, {name: nvidia.com/gpu, nominalQuota: 8}]
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: LocalQueue
  metadata: {name: main, namespace: lab}
  spec: {clusterQueue: vision}
""",
        "nodes.json": (SAMPLES / "nodes" / "kubectl.json").read_text(encoding="utf-8"),
    },
}


def imported(paths: list[Path], out: Path) -> bool:
    """Import a site or list of nodes. What is written is a configuration, whatever the names; True if it was read."""
    out.unlink(missing_ok=True)
    code, _ = told("site", "import", *paths, "--out", out)
    if code == 0:
        code, output = told("config", "check", out)
        assert code == 0, (output, out.read_text())
    return code == 0


@pytest.mark.parametrize("kind", [entry.name for _, entry in family_entries("node_lists")])
def test_every_text_field_of_every_list_of_nodes_is_text(kind: str, tmp_path: Path) -> None:
    for name in NODES[kind]:
        copy = tmp_path / name
        shutil.copy(SAMPLES / "nodes" / name, copy)
        assert imported([copy], tmp_path / "site.yaml")
        read = 0
        for text in variants(SAMPLES / "nodes" / name):
            copy.write_text(text, encoding="utf-8")
            read += imported([copy], tmp_path / "site.yaml")
        assert read


@pytest.mark.parametrize("kind", [entry.name for _, entry in family_entries("sites")])
def test_every_text_field_of_every_site_is_text(kind: str, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in SITES[kind]]
    for path in paths:
        path.write_text(SITES[kind][path.name], encoding="utf-8")
    assert imported(paths, tmp_path / "out" / "site.yaml")
    read = 0
    for path in paths[:-1] if kind != "Slurm" else paths:  # lists of nodes are tried above
        for text in list(variants(path)):
            path.write_text(text, encoding="utf-8")
            read += imported(paths, tmp_path / "out" / "site.yaml")
        path.write_text(SITES[kind][path.name], encoding="utf-8")
    assert read


def workload(name: str, queue: str, gpus: int, minute: int, flavor: str = "") -> dict[str, Any]:
    """A Kueue workload; it runs in the flavour, or waits."""
    requests = {"nvidia.com/gpu": str(gpus), "cpu": "2"}
    stated = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"resources": {"requests": requests}}]}}}
    since = f"2026-05-04T08:{minute:02}:00Z"
    flavors = dict.fromkeys(requests, flavor)
    running = {
        "admission": {"clusterQueue": queue, "podSetAssignments": [{"name": "main", "count": 1, "flavors": flavors}]},
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": since} for kind in ("QuotaReserved", "Admitted")
        ],
    }
    return {
        **{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"},
        "metadata": {"namespace": "lab", "name": name, "uid": f"u-{name}", "creationTimestamp": since},
        "spec": {"queueName": queue, "maximumExecutionTimeSeconds": 7000, "podSets": [stated], "priority": 1},
        "status": running if flavor else {},
    }


def kueue_object(kind: str, name: str, spec: dict[str, Any], **metadata: str) -> dict[str, Any]:
    metadata |= {"name": name}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


QUOTA = [{"name": "cpu", "nominalQuota": 16}, {"name": "nvidia.com/gpu", "nominalQuota": 8, "borrowingLimit": 2}]
GROUPS = [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": "big", "resources": QUOTA}]}]
SITE = "cluster:\n  groups:\n  - {name: n, hosts: 'n[1-2]', gpu: A100-40, gpus: 4, cpus: 16, memory_gb: 64}\n"
SNAPSHOTS: dict[str, tuple[str, str]] = {
    "squeue.txt": (
        SITE,
        "JOBID|USER|ACCOUNT|PARTITION|QOS|STATE|REASON|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODES|CPUS|MIN_MEMORY|"
        "TRES_PER_NODE|NODELIST|FEATURES|RESERVATION|DEPENDENCY\n"
        "7|kim|bio|day|std|RUNNING|None|2026-05-04T08:00:00|2026-05-04T08:30:00|30:00|2:00:00|2|32|2G|gres/gpu:4|"
        "n[1-2]|old||\n"
        "8|lee|bio|day|std|PENDING|Resources|2026-05-04T08:40:00|N/A|0:00|1:00:00|1|4|2G|gres/gpu:2||old||\n"
        "9|kim|geo|day|std|PENDING|Priority|2026-05-04T08:50:00|N/A|0:00|1:00:00|1|4|2G|gres/gpu:1||||singleton\n",
    ),
    "squeue.json": (SITE, (SAMPLES / "squeue" / "squeue.json").read_text(encoding="utf-8")),
    "qstat.txt": (SITE, (SAMPLES / "qstat" / "qstat.txt").read_text(encoding="utf-8")),
    "kueue.json": (
        "",
        json.dumps(
            [
                workload("bert", "vision", 8, 0, "big"),
                workload("vit", "vision", 4, 20),
                workload("tts", "speech", 6, 30),
                kueue_object(
                    "ClusterQueue", "vision", {"cohortName": "lab", "namespaceSelector": {}, "resourceGroups": GROUPS}
                ),
                kueue_object(
                    "ClusterQueue", "speech", {"cohortName": "lab", "namespaceSelector": {}, "resourceGroups": GROUPS}
                ),
                kueue_object("LocalQueue", "vision", {"clusterQueue": "vision"}, namespace="lab"),
                kueue_object("LocalQueue", "speech", {"clusterQueue": "speech"}, namespace="lab"),
                kueue_object("ResourceFlavor", "big", {"nodeLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB"}}),
            ]
        ),
    ),
}
"""Listings of queues, each with the configuration of its site, if it needs one."""


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_every_text_field_of_every_queue_is_text_in_forecasts_and_explanations(name: str, tmp_path: Path) -> None:
    site, listing = SNAPSHOTS[name]
    state, config, page = tmp_path / name, tmp_path / "site.yaml", tmp_path / "page.html"
    state.write_text(listing, encoding="utf-8")
    config.write_text(site, encoding="utf-8")
    words = ("--state", state, *(("--config", config) if site else ()), "--samples", 2)
    assert told("eta", *words, "--json")[0] == 0
    arrived, explained = set(), 0
    for text in variants(state):
        state.write_text(text, encoding="utf-8")
        page.unlink(missing_ok=True)
        if told("eta", *words, "--html", page)[0]:
            continue
        content = page.read_text(encoding="utf-8")
        assert not [tag for tag in ("<img", "<b>", "<script>alert") if tag in content]
        arrived.add(holds_hostile(content))
        shown = invoke(*map(str, ("eta", *words, "--json")))
        for job in json.loads(shown.stdout)["jobs"][:2]:
            explained += told("why", *words, "--", job["job"])[0] == 0
    assert True in arrived
    assert explained


def hostile_documents(schema: dict[str, Any], name: str) -> Iterator[Any]:
    """Yield small documents, each with the name at one place where the schema has a text of the user's own."""
    definitions = schema["$defs"]

    def resolved(node: dict[str, Any]) -> dict[str, Any]:
        return definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else node

    def choices(node: dict[str, Any]) -> list[dict[str, Any]]:
        return [choice for key in ("anyOf", "oneOf", "allOf") for choice in node.get(key, ())]

    def least(node: Any, depth: int = 0) -> Any:
        node = resolved(node) if isinstance(node, dict) else {}
        if "const" in node or "enum" in node:
            return node["const"] if "const" in node else node["enum"][0]
        if choices(node) and depth < 8:
            return least(choices(node)[0], depth + 1)
        match node.get("type"):
            case "string":
                return "x"
            case "number" | "integer":
                return 1
            case "boolean":
                return True
            case "array":
                return [least(part, depth + 1) for part in node.get("prefixItems", ())]
            case "object":
                return {key: least(node["properties"][key], depth + 1) for key in node.get("required", ())}
        return None

    def documents(node: Any, above: tuple[int, ...]) -> Iterator[Any]:
        node = resolved(node) if isinstance(node, dict) else {}
        if id(node) in above:
            return
        above = (*above, id(node))
        for choice in choices(node):
            yield from documents(choice, above)
        if node.get("type") == "string" and not node.keys() & {"enum", "const"}:
            yield name
        if isinstance(node.get("items"), dict):
            yield from ([inner] for inner in documents(node["items"], above))
        for place, part in enumerate(node.get("prefixItems", ())):
            for inner in documents(part, above):
                yield [inner if at == place else least(other) for at, other in enumerate(node["prefixItems"])]
        if isinstance(node.get("additionalProperties"), dict):
            yield {name: least(node["additionalProperties"])}
            yield from ({"x": inner} for inner in documents(node["additionalProperties"], above))
        properties = node.get("properties", {})
        needed = {
            key: least(part) for key, part in properties.items() if "const" in part or key in node.get("required", ())
        }
        for key, part in properties.items():
            for inner in documents(part, above):
                yield needed | {key: inner}

    yield from documents(schema, ())


def places(document: Any, name: str) -> Iterator[str]:
    """Yield the keys under which a document has the name."""
    for key, inner in document.items() if isinstance(document, dict) else ():
        if inner == name or (isinstance(inner, list) and name in inner) or key == name:
            yield key
        yield from places(inner, name)
    for inner in document if isinstance(document, list) else ():
        yield from places(inner, name)


def test_every_text_field_of_the_configuration_is_text(tmp_path: Path) -> None:
    schema = json.loads((ROOT / "configs" / "dagsim.schema.json").read_text(encoding="utf-8"))
    file, tried, taken = tmp_path / "c.yaml", set(), 0
    for number, document in enumerate(hostile_documents(schema, MARK)):
        tried |= set(places(document, MARK))
        name = list(HOSTILE.values())[number % len(HOSTILE)]
        file.write_text(json.dumps(document).replace(json.dumps(MARK), json.dumps(f"{MARK}{name}")), encoding="utf-8")
        if told("config", "check", file)[0] == 0:
            taken += 1
            told("config", "show", "--config", file)
    assert tried >= {"name", "hosts", "features", "tenants", "constraint", "cohort", "policy", "path", "timezone"}
    assert len(tried) > 60
    assert taken > 20
