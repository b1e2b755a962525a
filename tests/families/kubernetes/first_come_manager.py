"""A manager of Kueue in the standard library: each workload, by age, is admitted if the nominal quota of the
first flavor in its queue has room. It takes the option --kubeconfig. WRONG in its environment makes what it
assigns wrong: a ``flavor`` that does not exist, a ``count`` of pods with SIZE zeros, a ``condition`` without a
type, or ``nothing``.
"""

import json
import os
import queue
import sys
import threading
import urllib.request
from pathlib import Path

path = next(word for word in sys.argv if word.startswith("--kubeconfig="))[13:]
URL = json.loads(Path(path).read_text())["clusters"][0]["cluster"]["server"] + "/apis/kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"
events = queue.Queue()
tables = {"clusterqueues": {}, "workloads": {}}


def watch(kind):
    query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    for line in urllib.request.urlopen(f"{URL}/{kind}?{query}"):
        events.put((kind, json.loads(line)))


def holds(workload):
    return "admission" in workload.get("status", {})


def asked(workload):
    return sum(
        one["count"] * int(one["template"]["spec"]["containers"][0]["resources"]["requests"][GPU])
        for one in workload["spec"]["podSets"]
    )


def decide():
    queues, workloads = tables["clusterqueues"], tables["workloads"]
    used = dict.fromkeys(queues, 0)
    for one in workloads.values():
        if holds(one):
            used[one["spec"]["queueName"]] += asked(one)
    for name, one in sorted(workloads.items()):
        owner = one["spec"]["queueName"]
        flavor = queues[owner]["spec"]["resourceGroups"][0]["flavors"][0]
        if holds(one) or used[owner] + asked(one) > int(flavor["resources"][0]["nominalQuota"]):
            continue
        used[owner] += asked(one)
        sets = [
            {
                "name": part["name"],
                "count": part["count"],
                "flavors": {GPU: flavor["name"]},
                "resourceUsage": {GPU: "8"},
            }
            for part in one["spec"]["podSets"]
        ]
        since = {"status": "True", "lastTransitionTime": "2000-01-01T00:00:00Z"}
        conditions = [{"type": kind, "reason": kind, **since} for kind in ("QuotaReserved", "Admitted")]
        wrong = os.environ.get("WRONG", "")
        if wrong == "flavor":
            sets[0]["flavors"] = {GPU: "of-nowhere"}
        if wrong == "count":
            sets[0]["count"] = 10 ** int(os.environ["SIZE"])
        if wrong == "condition":
            conditions.append({"status": "True"})
        status = {"admission": {"clusterQueue": owner, "podSetAssignments": sets}, "conditions": conditions}
        if wrong == "nothing":
            del status["admission"]
        body = json.dumps({"status": status}).encode()
        where = f"{URL}/namespaces/default/workloads/{name}/status?fieldManager=test&force=true"
        headers = {"Content-Type": "application/apply-patch+yaml"}
        urllib.request.urlopen(urllib.request.Request(where, body, headers, method="PATCH")).read()
        one["status"] = status


for kind in tables:
    threading.Thread(target=watch, args=(kind,), daemon=True).start()
while True:
    kind, event = events.get()
    if event["type"] == "BOOKMARK":
        continue
    name = event["object"]["metadata"]["name"]
    if event["type"] == "DELETED":
        tables[kind].pop(name, None)
    else:
        tables[kind][name] = event["object"]
    if events.empty():
        decide()
