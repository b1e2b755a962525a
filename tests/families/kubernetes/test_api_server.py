"""The stand-in for the API server: what clients ask for, and the traffic of the real programs."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from dagsim.families.kubernetes.server.api_resources import GROUPS, NODES, PODS, resource
from dagsim.families.kubernetes.server.api_server import admitted
from dagsim.families.kubernetes.server.object_store import ObjectStore, Refusal, Resource
from dagsim.families.kubernetes.server.patches import InvalidPatch, matcher, merged, stepwise, without_dropped
from dagsim.families.kubernetes.server.program import Beside, kubeconfig

NODE = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}}
POD = {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


class Client:
    """Plain HTTP, for what a test asks."""

    def __init__(self, url: str) -> None:
        self.address = url.removeprefix("http://")
        self._connection = HTTPConnection(self.address, timeout=10)

    def ask(self, method: str, path: str, body: Any = None, form: str = "application/json") -> tuple[int, Any]:
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, {"Content-Type": form})
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content[:1] in b"{[" else content.decode()

    def close(self) -> None:
        self._connection.close()

    def watch(self, path: str) -> Queue[dict[str, Any]]:
        events: Queue[dict[str, Any]] = Queue()
        connection = HTTPConnection(self.address, timeout=10)

        def read() -> None:
            with closing(connection), suppress(OSError, HTTPException, ValueError):
                connection.request("GET", path)
                for line in connection.getresponse():
                    events.put(json.loads(line))

        threading.Thread(target=read, daemon=True).start()
        return events


@pytest.fixture
def beside() -> Iterator[Beside]:
    beside = Beside("test", 10.0)
    yield beside
    beside.close()


@pytest.fixture
def client(beside: Beside) -> Iterator[Client]:
    client = Client(beside.call(beside.api.start()))
    yield client
    client.close()


def test_objects_are_created_read_changed_and_deleted(client: Client) -> None:
    code, pod = client.ask("POST", "/api/v1/namespaces/default/pods", POD)
    assert (code, pod["kind"], pod["apiVersion"], pod["status"]) == (201, "Pod", "v1", {"phase": "Pending"})
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["metadata"]["creationTimestamp"] == "2000-01-01T00:00:00Z"
    path = "/api/v1/namespaces/default/pods/p"
    patch = {"metadata": {"labels": {"app": None, "new": "1"}}}
    assert client.ask("PATCH", path, patch, "application/merge-patch+json")[1]["metadata"]["labels"] == {"new": "1"}
    assert client.ask("PUT", path, pod)[0] == 409  # its resource version is an old one
    assert client.ask("POST", "/api/v1/namespaces/default/pods", POD)[0] == 409
    assert client.ask("DELETE", path)[0] == 200
    code, status = client.ask("GET", path)
    assert (code, status["kind"], status["reason"]) == (404, "Status", "NotFound")


def test_a_bound_pod_runs_at_once_and_cannot_be_bound_again(beside: Beside, client: Client) -> None:
    beside.store.now_s = 90.0
    client.ask("POST", "/api/v1/nodes", NODE)
    pod = client.ask("POST", "/api/v1/namespaces/default/pods", POD)[1]
    binding = {"metadata": {"name": "p", "uid": pod["metadata"]["uid"]}, "target": {"kind": "Node", "name": "n"}}
    wrong = {**binding, "metadata": {"name": "p", "uid": "another"}}
    path = "/api/v1/namespaces/default/pods/p"
    assert client.ask("POST", f"{path}/binding", wrong)[0] == 409
    assert client.ask("POST", f"{path}/binding", {**binding, "target": {}})[0] == 422
    assert client.ask("POST", f"{path}/binding", binding)[0] == 201
    bound = client.ask("GET", path)[1]
    assert (bound["spec"]["nodeName"], bound["status"]["phase"]) == ("n", "Running")
    assert bound["status"]["startTime"] == "2000-01-01T00:01:30Z"
    assert client.ask("POST", f"{path}/binding", binding)[0] == 409


def test_a_streaming_list_ends_with_its_bookmark_and_goes_on_with_changes(client: Client) -> None:
    client.ask("POST", "/api/v1/nodes", NODE)
    query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    events = client.watch(f"/api/v1/nodes?{query}")
    assert (first := events.get(timeout=5))["type"] == "ADDED"
    assert first["object"]["kind"] == "Node"
    end = events.get(timeout=5)
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    client.ask("DELETE", "/api/v1/nodes/n")
    assert events.get(timeout=5)["type"] == "DELETED"


def test_a_watch_sees_an_object_that_no_longer_matches_as_deleted(beside: Beside, client: Client) -> None:
    events = client.watch("/api/v1/pods?watch=true&fieldSelector=status.phase%21%3DSucceeded")
    pod = client.ask("POST", "/api/v1/namespaces/default/pods", POD)[1]
    assert events.get(timeout=5)["type"] == "ADDED"
    path = "/api/v1/namespaces/default/pods/p"
    client.ask("PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}}, "application/strategic-merge-patch+json")
    assert events.get(timeout=5)["type"] == "DELETED"
    later = client.watch(f"/api/v1/pods?watch=true&resourceVersion={pod['metadata']['resourceVersion']}")
    assert later.get(timeout=5)["object"]["status"]["phase"] == "Succeeded"
    code, status = client.ask("GET", "/api/v1/pods?watch=true&resourceVersion=999999")
    assert (code, status["reason"]) == (410, "Expired")


def test_lists_are_paged_and_selected(client: Client) -> None:
    for number in range(5):
        labels = {"odd": str(number % 2)}
        client.ask("POST", "/api/v1/namespaces/a/pods", {**POD, "metadata": {"name": f"p{number}", "labels": labels}})
    page = client.ask("GET", "/api/v1/namespaces/a/pods?limit=3")[1]
    assert [one["metadata"]["name"] for one in page["items"]] == ["p0", "p1", "p2"]
    rest = client.ask("GET", f"/api/v1/namespaces/a/pods?limit=3&continue={page['metadata']['continue']}")[1]
    assert [one["metadata"]["name"] for one in rest["items"]] == ["p3", "p4"]
    odd = client.ask("GET", "/api/v1/pods?labelSelector=odd%3D1")[1]
    assert [one["metadata"]["name"] for one in odd["items"]] == ["p1", "p3"]
    assert client.ask("GET", "/api/v1/namespaces/b/pods")[1]["items"] == []


def test_a_victim_lingers_and_a_finalizer_holds_its_object(beside: Beside, client: Client) -> None:
    beside.store.grace_s = 20.0
    client.ask("POST", "/api/v1/namespaces/default/pods", {**POD, "spec": {**POD["spec"], "nodeName": "n"}})
    gone = client.ask("DELETE", "/api/v1/namespaces/default/pods/p")[1]
    assert gone["metadata"]["deletionTimestamp"] == "2000-01-01T00:00:20Z"
    held = {"metadata": {"name": "q", "finalizers": ["kueue.x-k8s.io/resource-in-use"]}, "spec": {}}
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
    client.ask("POST", path, held)
    assert "deletionTimestamp" in client.ask("DELETE", f"{path}/q")[1]["metadata"]
    freed = client.ask("GET", f"{path}/q")[1]
    del freed["metadata"]["finalizers"]
    client.ask("PUT", f"{path}/q", freed)
    assert client.ask("GET", f"{path}/q")[0] == 404


def test_what_is_not_served_is_refused_and_noted(beside: Beside, client: Client) -> None:
    assert client.ask("GET", "/apis/example.com/v1/things")[0] == 404
    assert beside.api.asked["GET /apis/example.com/v1/things (404)"] == 1
    assert client.ask("POST", "/api/v1/nodes", NODE, "application/vnd.kubernetes.protobuf")[0] == 415
    assert client.ask("POST", "/api/v1/nodes", 1)[0] == 400
    assert client.ask("PATCH", "/api/v1/nodes/none", {}, "application/merge-patch+json")[0] == 404


def test_discovery_lists_every_kind_that_is_served(client: Client) -> None:
    groups = {one["name"] for one in client.ask("GET", "/apis")[1]["groups"]}
    assert groups == set(GROUPS) - {""}
    for versions in GROUPS.values():
        for served in versions:
            path = f"/apis/{served.name}" if served.group else f"/api/{served.version}"
            names = {entry["name"] for entry in client.ask("GET", path)[1]["resources"]}
            assert set(served.resources) <= names


def test_patches_follow_their_documents() -> None:
    old = {"a": 1, "conditions": [{"type": "A", "status": "True"}, {"type": "B"}], "list": [1, 2]}
    patch = {
        "a": None,
        "conditions": [{"type": "B", "status": "False"}, {"type": "A", "$patch": "delete"}],
        "list": [3],
    }
    assert merged(old, patch, strategic=True) == {"conditions": [{"type": "B", "status": "False"}], "list": [3]}
    assert merged(old, {"conditions": [{"type": "C"}]}, strategic=False)["conditions"] == [{"type": "C"}]
    assert stepwise({"a": {"b": [1]}}, [{"op": "add", "path": "/a/b/-", "value": 2}]) == {"a": {"b": [1, 2]}}
    with pytest.raises(InvalidPatch, match="is different"):
        stepwise({"a": 1}, [{"op": "test", "path": "/a", "value": 2}])
    with pytest.raises(InvalidPatch, match="cannot be applied"):
        stepwise({"a": 1}, [{"op": "remove", "path": "/b/c"}])
    applied = {"admission": {"queue": "q"}, "conditions": [{"type": "A"}]}
    current = {"admission": {"queue": "q"}, "conditions": [{"type": "A"}, {"type": "B"}], "other": 1}
    assert without_dropped(current, applied, {"conditions": []}) == {"conditions": [{"type": "B"}], "other": 1}


@pytest.mark.parametrize(
    ("labels", "fields", "chosen"),
    [
        ("app=web", "", True), ("app==web,tier", "", False), ("!tier", "", True), ("app!=web", "", False),
        ("app in (web, db)", "", True), ("app notin (web)", "", False), ("", "spec.nodeName=", True),
        ("", "metadata.name=p,spec.nodeName!=n", True),
    ],
)  # fmt: skip
def test_selectors_choose_objects(labels: str, fields: str, chosen: bool) -> None:
    assert matcher(labels, fields)(POD) is chosen


def test_an_old_version_has_to_be_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagsim.families.kubernetes.server.object_store._MOST_CHANGES", 10)
    store = ObjectStore()
    for number in range(30):
        store.create(NODES, {"metadata": {"name": f"n{number}"}})
    with pytest.raises(Refusal, match="too old"):
        store.changes(NODES, 2)
    assert [change.object["metadata"]["name"] for change in store.changes(NODES, store.version - 1)] == ["n29"]


# The traffic of the real programs (golden/kube/traffic).

_VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp", "managedFields")

_DROPPED = ("resourceRequests",)
"""Kueue leaves them out of its second apply; the recording's server kept them, the real one drops them."""


def steady(object: Any) -> Any:
    """An object without what differs between servers."""
    metadata = {
        key: value for key, value in object["metadata"].items() if key not in _VOLATILE and value not in ({}, [])
    }
    status = {key: value for key, value in (object.get("status") or {}).items() if key not in _DROPPED}
    return {"metadata": metadata, "spec": object.get("spec"), "status": status}


def kind_of(text: str) -> Resource:
    *group, _, plural = text.split("/")
    return resource(plural, group[0] if group else "")


@pytest.mark.data
@pytest.mark.parametrize("name", ["ks-fifo", "ks-preempt", "ks-failure", "kueue"])
def test_recorded_traffic_gets_the_recorded_answers(name: str, beside: Beside, client: Client) -> None:
    file = Path(os.environ["DAGSIM_DATA"], "golden/kube/traffic", f"{name}.jsonl.gz")
    uids: dict[str, str] = {}
    answers = 0
    for line in gzip.decompress(file.read_bytes()).decode().splitlines():
        for theirs, mine in uids.items():
            line = line.replace(theirs, mine) if theirs in line else line
        entry = json.loads(line)
        if "store" in entry and entry["by"] == "driver":
            beside.call(write(beside.store, entry, uids))
        elif "store" in entry:
            continue
        elif entry.get("watch"):
            assert client.watch(entry["path"]).get(timeout=5)["type"] in ("ADDED", "BOOKMARK"), entry["path"]
        else:
            body = entry.get("body")
            if isinstance(body, dict) and body.get("metadata", {}).get("resourceVersion"):
                del body["metadata"]["resourceVersion"]
            code, reply = client.ask(entry["method"], entry["path"], body, form_of(entry))
            if entry["status"] == 409:
                continue  # a lost race of the recording
            assert code == entry["status"], (entry["path"], reply)
            answers += 1
            theirs = entry.get("reply")
            if isinstance(theirs, dict) and "metadata" in theirs and theirs.get("kind") not in ("Status", "Event"):
                assert steady(reply) == steady(theirs), entry["path"]
    assert answers > 10


def form_of(entry: dict[str, Any]) -> str:
    """The media type of a request, which the record leaves out."""
    if entry["method"] != "PATCH":
        return "application/json"
    return f"application/{'apply-patch+yaml' if 'fieldManager' in entry['path'] else 'strategic-merge-patch+json'}"


async def write(store: ObjectStore, entry: dict[str, Any], uids: dict[str, str]) -> None:
    kind, object = kind_of(entry["resource"]), entry["object"]
    key = (object["metadata"].get("namespace", ""), object["metadata"]["name"])
    if entry["store"] == "ADDED":
        status = object.get("status")
        new = store.create(kind, {**object, **({"status": status} if status else {})})
        uids[object["metadata"]["uid"]] = new["metadata"]["uid"]
    elif entry["store"] == "DELETED":
        store.delete(kind, key)
    else:
        mine = store.get(kind, key)["metadata"]
        store.assign(kind, key, {**object, "metadata": {**object["metadata"], "uid": mine["uid"]}})


# Clients from packages.


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl (Debian: kubernetes-client)")
def test_kubectl_applies_reads_and_deletes(client: Client, tmp_path: Path) -> None:
    configuration = tmp_path / "kubeconfig"
    configuration.write_text(json.dumps(kubeconfig(f"http://{client.address}")))
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **POD}))

    def kubectl(*words: str) -> str:
        environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(configuration)}
        result = subprocess.run(["kubectl", *words], env=environment, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "created" in kubectl("apply", "--validate=false", "-f", str(manifest))
    assert "unchanged" in kubectl("apply", "--validate=false", "-f", str(manifest))
    assert "serverside-applied" in kubectl("apply", "--server-side", "--validate=false", "-f", str(manifest))
    assert json.loads(kubectl("get", "pods", "-A", "-o", "json"))["items"][0]["metadata"]["name"] == "p"
    assert "p " in kubectl("get", "pods")
    kubectl("label", "pod", "p", "more=1")
    client.ask("POST", "/api/v1/nodes", NODE)
    kubectl("cordon", "n")
    assert client.ask("GET", "/api/v1/nodes/n")[1]["spec"]["unschedulable"] is True
    kubectl("taint", "nodes", "n", "key=value:NoSchedule")
    assert "clusterqueues" in kubectl("api-resources")
    assert "deleted" in kubectl("delete", "pod", "p")


def test_the_official_python_client_binds_a_pod(client: Client) -> None:
    api = pytest.importorskip("kubernetes", reason="needs the package kubernetes")
    settings = api.client.Configuration(host=f"http://{client.address}")
    core = api.client.CoreV1Api(api.client.ApiClient(settings))
    core.create_node(NODE)
    core.create_namespaced_pod("default", POD)
    body = api.client.V1Binding(
        metadata=api.client.V1ObjectMeta(name="p"), target=api.client.V1ObjectReference(kind="Node", name="n")
    )
    core.create_namespaced_binding("default", body, _preload_content=False)
    listed = core.list_pod_for_all_namespaces(label_selector="app=web", limit=5)
    assert [(pod.metadata.name, pod.spec.node_name, pod.status.phase) for pod in listed.items] == [
        ("p", "n", "Running")
    ]
    events = api.watch.Watch().stream(core.list_node, resource_version="1", timeout_seconds=1)
    assert [event["object"].metadata.name for event in events] == ["n"]
    core.delete_namespaced_pod("p", "default")
    assert core.list_namespaced_pod("default").items == []


def test_requests_default_to_limits() -> None:
    limits = {"cpu": "1"}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"limits": limits}}]}}
    assert admitted(PODS, pod, ObjectStore())["spec"]["containers"][0]["resources"]["requests"] == limits


@pytest.mark.parametrize(
    ("method", "path", "body", "form", "code"),
    [
        ("POST", "", {"metadata": 5}, "json", 400),
        ("POST", "", {"metadata": {"name": 5}}, "json", 422),
        ("POST", "", {"metadata": {"name": "n" * 300}}, "json", 422),
        ("POST", "", {"metadata": {"name": "q", "labels": {"a": {}}}}, "json", 422),
        ("POST", "", {"metadata": {"name": "q"}, "spec": {"nodeName": ["n"]}}, "json", 422),
        ("POST", "", {"metadata": {"name": "q"}, "status": {"conditions": 1}}, "json", 422),
        ("POST", "", [{"metadata": {"name": "q"}}], "json", 400),
        ("PATCH", "/p/status", {"status": {"conditions": [5]}}, "merge-patch+json", 422),
        ("PATCH", "/p", [{"op": 5}], "json-patch+json", 422),
        ("PATCH", "/p", {"metadata": {"labels": None}}, "json-patch+json", 400),
        ("PUT", "/p", [], "json", 400),
        ("DELETE", "/p", {"preconditions": 5}, "json", 400),
        ("POST", "/p/binding", {"target": {"name": 5}}, "json", 422),
    ],
)
def test_what_has_another_form_is_refused_and_changes_nothing(
    beside: Beside, client: Client, method: str, path: str, body: Any, form: str, code: int
) -> None:
    client.ask("POST", "/api/v1/namespaces/default/pods", POD)
    version = beside.store.version
    answer, status = client.ask(method, f"/api/v1/namespaces/default/pods{path}", body, f"application/{form}")
    assert (answer, status["kind"], beside.store.version) == (code, "Status", version)


@pytest.mark.parametrize(
    ("body", "form", "code"),
    [
        (b"[" * 100_000, "json", 400),
        (b"{" + b" " * (4 << 20) + b"}", "json", 413),
        (b"a: &a [1]\nb: [*a, *a]\n", "apply-patch+yaml", 400),
    ],
)
def test_a_body_that_is_too_deep_or_too_large_is_refused(client: Client, body: bytes, form: str, code: int) -> None:
    with closing(HTTPConnection(client.address, timeout=10)) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # the server may answer before it has read everything
            connection.request("PATCH", "/api/v1/nodes/n?fieldManager=m", body, {"Content-Type": f"application/{form}"})
        with suppress(ConnectionResetError):
            assert connection.getresponse().status == code
    assert client.ask("GET", "/api/v1/nodes")[1]["items"] == []
