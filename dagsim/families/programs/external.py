"""A scheduler in another program, in any language, which exchanges lines of JSON with dagsim
(docs/reference/protocol.md).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from math import isfinite
from threading import Timer
from typing import Any, NoReturn
from weakref import finalize

from dagsim.errors import PolicyFailed
from dagsim.families.programs.process import end_program, program_words, shown
from dagsim.files import parsed_json
from dagsim.model import Decision, Preempt, Share, Start, Wait
from dagsim.systems.cluster.api import MICRO, ClusterView, NodeState, Run, TaskState

PROTOCOL = 1
"""Version of the protocol, sent in the first message."""

_MOST_BYTES = 64_000_000
"""Maximum length of an answer line."""


class External:
    """A scheduler that ``command`` starts, without a shell. Each question and each answer is one
    line of JSON.

    Like every policy, it is called again until its answer contains no decision that could be
    carried out. ``timeout_s`` limits the wall-clock time until an answer.

    Raises:
        ConfigError: ``command`` is empty or its quotes do not match, or ``timeout_s`` is not
            positive.
        UnknownName: The program does not exist.
    """

    def __init__(self, command: str, timeout_s: float = 10.0) -> None:
        self.argv = program_words("exec", command, "exec:node fifo.js", timeout_s)
        self.name = f"exec:{command}"
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise PolicyFailed(f"policy {self.name!r} cannot be forked: the state of another program cannot be copied")

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        """Yield the other program's decisions for the current time.

        Raises:
            PolicyFailed: The program ended, did not answer in time, or sent an invalid answer.
        """
        if self._process is None:
            self._process = self._started()
            self._send(view, _begin(view))
        tasks = {_key(task): task for task in view.ready}
        answer = self._asked(view, _question(view, tasks))
        for item in self._decisions(view, answer):
            if (decision := self._decision(view, tasks, item)) is not None:
                yield decision

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise PolicyFailed(f"policy {self.name!r} cannot be started: {error.strerror}") from None
        finalize(self, end_program, process)
        return process

    def _send(self, view: ClusterView, message: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message, allow_nan=False).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._fail(view, self._gone())

    def _asked(self, view: ClusterView, question: Mapping[str, Any]) -> Any:
        """Send a question, and return the answer if it arrives within the timeout."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        late: list[bool] = []

        def stop() -> None:
            late.append(True)
            process.kill()  # this also unblocks the threads that read and write

        watchdog = Timer(self.timeout_s, stop)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._send(view, question)
            line = process.stdout.readline(_MOST_BYTES)
        except PolicyFailed:
            if late:
                self._fail(view, f"gave no answer within {self.timeout_s:g} s")
            raise
        finally:
            watchdog.cancel()
        if late:
            self._fail(view, f"gave no answer within {self.timeout_s:g} s")
        if not line.endswith(b"\n"):
            self._fail(view, "answered with an endless line" if len(line) >= _MOST_BYTES else self._gone())
        try:
            return parsed_json(line)
        except ValueError:
            self._nonsense(view, line, "that is not JSON; a scheduler writes nothing but answers to standard output")

    def _decisions(self, view: ClusterView, answer: Any) -> list[Any]:
        has_known_keys = isinstance(answer, dict) and set(answer) <= {"decisions"}
        decisions = answer.get("decisions", []) if has_known_keys else None
        if not isinstance(decisions, list):
            self._nonsense(view, answer, 'expected {"decisions": [...]}')
        return decisions

    def _decision(self, view: ClusterView, tasks: Mapping[str, TaskState], item: Any) -> Decision | None:
        """Parse a decision. Return ``None`` for a start without a placement if the task does not fit
        now.
        """
        match item:
            case {"start": str(key), **rest} if set(rest) <= {"nodes", "type"}:
                task = tasks.get(key)
                if task is None:
                    self._nonsense(view, item, f"there is no ready task {key!r}")
                return self._start(view, task, item)
            case {"preempt": int(run), **rest} if not rest and not isinstance(run, bool):
                return Preempt(run)
            case {"wait": int() | float() as until_s, **rest} if not rest and isfinite(until_s):
                return Wait(float(until_s))
        self._nonsense(view, item, 'expected {"start": task}, {"preempt": run} or {"wait": until}')

    def _start(self, view: ClusterView, task: TaskState, item: Mapping[str, Any]) -> Start | None:
        if "nodes" not in item:
            type_ = item.get("type")
            if type_ is not None and (type(type_) is not int or not 0 <= type_ < len(view.gpu_types)):
                self._nonsense(view, item, f"type must be a place in gpu_types, 0 to {len(view.gpu_types) - 1}")
            if not task.waiting or (type_ is not None and not isfinite(task.seconds[type_])):
                return None
            placement = view.fit(task, type_)
            return None if placement is None else Start(task, placement)
        nodes = item["nodes"]
        if not isinstance(nodes, list) or not all(
            isinstance(share, list) and len(share) == 2 and all(type(part) is int for part in share) for share in nodes
        ):
            self._nonsense(view, item, "nodes must be a list of [node, instances]")
        return Start(task, tuple(Share(node, instances) for node, instances in nodes))

    def _gone(self) -> str:
        """Describe how the program has ended, for an error message."""
        assert self._process is not None
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed its standard output"
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def _nonsense(self, view: ClusterView, answer: Any, what: str) -> NoReturn:
        self._fail(view, f"answered {shown(answer)}: {what}")

    def _fail(self, view: ClusterView, what: str) -> NoReturn:
        raise PolicyFailed(f"policy {self.name!r} at {view.now:g} s: the program {what} (docs/reference/protocol.md)")


def _begin(view: ClusterView) -> dict[str, Any]:
    """Return the first message, which contains everything that never changes."""
    types = [None if gpu is None else gpu.name for gpu in view.gpu_types]
    nodes = [
        {
            "name": state.node.name,
            "type": state.type,
            "gpus": state.gpus,
            "cpus": state.node.cpus,
            "memory_gb": state.node.memory_gb,
        }
        for state in view.machines.list
    ]
    return {"ask": "begin", "protocol": PROTOCOL, "gpu_types": types, "nodes": nodes}


def _question(view: ClusterView, tasks: Mapping[str, TaskState]) -> dict[str, Any]:
    return {
        "ask": "decide",
        "now": view.now,
        "ready": [_task(key, task) for key, task in tasks.items()],
        "running": [_run(run, view.now) for run in view.running.values()],
        "free": [_free(state) for state in view.machines.list],
    }


def _key(task: TaskState) -> str:
    return f"{task.job.number}.{task.index}.{task.piece}"


def _task(key: str, task: TaskState) -> dict[str, Any]:
    job, asked = task.job.job, task.task
    return {
        "task": key,
        "job": job.id,
        "name": asked.name,
        "tenant": job.tenant,
        "priority": job.priority,
        "weight": job.weight,
        "deadline": job.deadline_s,
        "arrival": job.arrival_s,
        "ready": task.ready_s,
        "instances": task.waiting,
        "gang": asked.gang,
        "gpus": asked.gpus,
        "cpus": asked.cpus,
        "memory_gb": asked.memory_gb,
        "seconds": [seconds if isfinite(seconds) else None for seconds in task.seconds],
        "path": task.rank_s,
    }


def _run(run: Run, now: float) -> dict[str, Any]:
    return {
        "run": run.id,
        "task": _key(run.task),
        "job": run.job.job.id,
        "tenant": run.job.job.tenant,
        "instances": run.instances,
        "nodes": list(run.nodes),
        "gpus": run.gpus,
        "started": run.started_s,
        "expected_end": run.estimated_end_s(now),
    }


def _free(state: NodeState) -> dict[str, Any] | None:
    """Return the free resources of a node, or ``None`` while it is down."""
    if not state.up:
        return None
    free: dict[str, Any] = {"gpus": state.idle, "cpus": state.cpus / MICRO, "memory_gb": state.memory / MICRO}
    return free | ({"shares": [left / MICRO for left in state.shares.values()]} if state.shares else {})
