"""A queue as ``squeue --json`` prints it, and the words of a command about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NOW_S = 1_700_000_000


def queued(
    id: int, state: str = "PENDING", *, cpus: int = 8, gpus: int = 0, memory_gb: int = 2, node_count: int = 1,
    **terms: Any,
) -> dict[str, Any]:  # fmt: skip
    """A job that asks for these resources for 50 minutes and was submitted 10 minutes ago; it ran since, if at all."""
    tres = f"cpu={cpus},mem={memory_gb}G,node={node_count}" + (f",gres/gpu={gpus}" if gpus else "")
    job = {
        "job_id": id, "user_name": "kit", "account": "geo", "partition": "day", "qos": "std", "job_state": [state],
        "state_reason": "None", "submit_time": NOW_S - 600, "eligible_time": NOW_S - 600, "start_time": 0,
        "time_limit": 50, "node_count": node_count, "cpus": cpus, "tres_req_str": tres, "tres_alloc_str": "",
        "nodes": "", "dependency": "", "name": f"job{id}",
    }  # fmt: skip
    if state != "PENDING":
        job |= {"start_time": NOW_S - 600, "nodes": "n1", "tres_alloc_str": tres}
    return job | terms


def as_listed(jobs: list[dict[str, Any]]) -> str:
    return json.dumps({"jobs": jobs, "last_update": NOW_S})


def queue_words(folder: Path, queue: str, site: str, name: str = "now.json") -> list[str]:
    """Write the listing of a queue and the configuration of its site; the words of a command that name both."""
    (folder / name).write_text(queue)
    (folder / "site.yaml").write_text(site)
    return ["--state", str(folder / name), "--config", str(folder / "site.yaml")]
