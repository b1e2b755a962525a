"""A scheduler of Kubernetes in the standard library: each pod, by priority and age, goes to the first node
with room; one that finds none stops younger pods of lower priority there. Takes the options of kube-scheduler.

With LINGER in its environment it never gives a verdict, with QUIT it ends at its first pod. WRONG makes its
bindings wrong: to a node that does not exist (``unknown``) or has no room (``full``), or right with requests that
have to be refused beside them (``beside``), whose codes it appends to the file TOLD. With METRICS, a file with a key
and a certificate, it serves the metrics from which dagsim tells that kube-scheduler is idle.
"""

import json
import os
import queue
import socket
import ssl
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

configuration = json.loads(Path(next(word for word in sys.argv if word.startswith("--config="))[9:]).read_text())
kubeconfig = json.loads(Path(configuration["clientConnection"]["kubeconfig"]).read_text())
URL = kubeconfig["clusters"][0]["cluster"]["server"]
events = queue.Queue()
tables = {"nodes": {}, "pods": {}}
WRONG = os.environ.get("WRONG", "")
handled = Counter()
assigned = set()
busy = threading.Event()


def send(method, path, body, form="application/json"):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": form}, method=method)
    return json.load(urllib.request.urlopen(request))


def refusals(path, name, node):
    """Bind a pod again, bind one that is gone, send what is no object, and far too much."""
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    for where, body in (
        (path + "/binding", binding),
        ("/api/v1/namespaces/default/pods/gone-0/binding", {**binding, "metadata": {"name": "gone-0"}}),
        (path + "/binding", [binding]),
        ("/api/v1/namespaces/default/pods", {"metadata": {"name": "large", "annotations": {"a": "x" * (4 << 20)}}}),
        ("/api/v1/namespaces/default/pods", {"metadata": {"name": "many"}, "spec": {"containers": -1}}),
    ):
        try:
            send("POST", where, body)
            code = 0
        except urllib.error.HTTPError as error:
            code = error.code
        except urllib.error.URLError:  # the server answered and closed before it had read all of it
            code = 413
        with open(os.environ["TOLD"], "a") as told:
            told.write(f"{code} ")


def watch(kind):
    query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    for line in urllib.request.urlopen(f"{URL}/api/v1/{kind}?{query}"):
        events.put((kind, json.loads(line)))


def needs(pod):
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    return float(requests.get("cpu", 0)), float(requests.get("nvidia.com/gpu", 0))


def offers(node):
    amounts = node["status"]["allocatable"]
    if any(taint["effect"] == "NoSchedule" for taint in node["spec"].get("taints", [])):
        return 0.0, 0.0
    return float(amounts["cpu"].rstrip("m")) / 1000, float(amounts.get("nvidia.com/gpu", 0))


def fits(need, room):
    return all(part <= free + 1e-9 for part, free in zip(need, room, strict=True))


def decide():
    nodes, pods = tables["nodes"], tables["pods"]
    room = {name: list(offers(node)) for name, node in nodes.items()}
    for pod in pods.values():
        if node := pod["spec"].get("nodeName"):
            room[node] = [free - part for free, part in zip(room[node], needs(pod), strict=True)]
    waiting = [pod for pod in pods.values() if not pod["spec"].get("nodeName")]
    for pod in sorted(
        waiting, key=lambda pod: (-pod["spec"]["priority"], int(pod["metadata"]["name"].rpartition("-")[2]))
    ):
        name, need = pod["metadata"]["name"], needs(pod)
        path = f"/api/v1/namespaces/default/pods/{name}"
        node = next((node for node in sorted(room) if fits(need, room[node])), None)
        if WRONG == "full":
            node = min(room)
        if node is not None:
            if WRONG == "unknown":
                node = "nowhere"
                room[node] = need
            send("POST", path + "/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}})
            if WRONG == "beside":
                refusals(path, name, node)
            pod["spec"]["nodeName"] = node
            room[node] = [free - part for free, part in zip(room[node], need, strict=True)]
            continue
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        form = "application/strategic-merge-patch+json"
        send("PATCH", path + "/status", {"status": {"conditions": [condition]}}, form)
        lower = [
            one
            for one in pods.values()
            if one["spec"].get("nodeName") and one["spec"]["priority"] < pod["spec"]["priority"]
        ]
        for victim in lower[-1:]:
            with suppress(urllib.error.HTTPError):  # it may be on its way out already
                send("DELETE", f"/api/v1/namespaces/default/pods/{victim['metadata']['name']}", {})
            return


def count(kind, event):
    """Count an event under the name that kube-scheduler gives it, once it has been dealt with."""
    name, change = event["object"]["metadata"]["name"], event["type"]
    if kind == "nodes":
        handled[{"ADDED": "NodeAdd", "MODIFIED": "NodeAnnotation", "DELETED": "NodeDelete"}[change]] += 1
    elif not event["object"]["spec"].get("nodeName"):
        handled[{"ADDED": "UnschedulablePodAdd"}.get(change, "")] += 1
    elif change == "DELETED":
        handled["AssignedPodDelete"] += 1
    else:
        handled["AssignedPodUpdate" if name in assigned else "AssignedPodAdd"] += 1
        assigned.add(name)


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet, as from kube-scheduler

    def do_GET(self):
        active = events.qsize() + busy.is_set()
        metrics = [f'scheduler_pending_pods{{queue="active"}} {active}']
        name = "scheduler_event_handling_duration_seconds"
        counts = [f'{name}_count{{event="{event}"}} {times}' for event, times in list(handled.items())]
        text = "\n".join(["", "# TYPE scheduler_pending_pods gauge", *metrics, f"# TYPE {name} histogram", *counts, ""])
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *about):
        pass


class Pages(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


def serve_metrics():
    port = int(next(word for word in sys.argv if word.startswith("--secure-port="))[14:])
    pages = Pages(("127.0.0.1", port), Page)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.environ["METRICS"])
    pages.socket = context.wrap_socket(pages.socket, server_side=True)
    pages.serve_forever()


if "METRICS" in os.environ:
    threading.Thread(target=serve_metrics, daemon=True).start()
for kind in tables:
    threading.Thread(target=watch, args=(kind,), daemon=True).start()
while True:
    busy.clear()
    kind, event = events.get()
    busy.set()
    if event["type"] == "BOOKMARK":
        continue
    if kind == "pods" and "QUIT" in os.environ:
        sys.exit("the first pod was too much")
    name = event["object"]["metadata"]["name"]
    if event["type"] == "DELETED":
        tables[kind].pop(name, None)
    else:
        tables[kind][name] = event["object"]
    if events.empty() and "LINGER" not in os.environ:
        decide()
    count(kind, event)
