"""A complete system in 100 lines: GPUs serve requests for models, and load weights when the model changes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import ClassVar, NamedTuple

from dagsim.errors import IllegalDecision
from dagsim.model import Cluster, JobFacts, Kind
from dagsim.model.gpu import gpu_type
from dagsim.model.log import Schedule
from dagsim.model.streams import stream
from dagsim.registry import Entry, Registry
from dagsim.systems.seam import Scenario, decisions_of


class Serve(NamedTuple):
    """A decision to serve a waiting request on an idle GPU."""

    request: int
    gpu: int


class ServerView:
    """The current state, as a policy sees it."""

    def __init__(self, kernel: ServerKernel) -> None:
        self._kernel = kernel

    now = property(lambda self: self._kernel.now)
    waiting = property(lambda self: tuple(self._kernel.waiting))  # (number, model) of requests, in order of arrival
    idle = property(lambda self: {gpu: self._kernel.loaded[gpu] for gpu in sorted(self._kernel.idle)})  # GPU: model

    def stream(self, name):
        return stream(self._kernel.schedule.seed, name)


class ServerKernel:
    """The simulation, in which requests arrive and policies assign them to GPUs. It records every event in a log."""

    def __init__(self, server: ModelServer, seed: int, on_arrivals) -> None:
        rng = stream(seed, "requests")
        self._server, self._on_arrivals = server, on_arrivals
        times = rng.exponential(server.gap_s, server.requests).cumsum()
        models, seconds = rng.integers(server.models, size=len(times)), rng.exponential(1.0, len(times))
        self._coming = deque(zip(times.tolist(), models.tolist(), seconds.tolist(), strict=True))
        self._seconds, self._ends, self.now = [], [], 0.0
        self.waiting, self.idle, self.loaded = deque(), set(range(server.gpus)), dict.fromkeys(range(server.gpus))
        self.schedule = Schedule(server.cluster, seed=seed)

    def decisions(self, until_s=inf):
        view = ServerView(self)
        while self._coming or self._ends or self.waiting:
            arrival_s = self._coming[0][0] if self._coming else inf
            now = min(arrival_s, self._ends[0][0] if self._ends else inf)
            if now == inf or now > until_s:
                break
            self.now = now
            while self._ends and self._ends[0][0] == now:  # ends come before arrivals
                self._finish(*heappop(self._ends)[1:])
            if arrival_s == now:
                self._arrive(*self._coming.popleft()[1:])
            while self.waiting and self.idle:
                answer = [self._serve(decision) for decision in decisions_of((yield view), now)]
                if not answer:
                    break
        self.schedule.ended_s = min(until_s, self.now) if until_s == inf else until_s

    def _write(self, kind, request, run=-1, gpu=-1):
        held = gpu >= 0
        task = 0 if held else -1
        self.schedule.log.append((kind, self.now, request, task, run, gpu, int(held), int(held), float(held)))

    def _arrive(self, model, seconds):
        number = len(self._seconds)
        if self._on_arrivals is not None:
            self._on_arrivals(number)
        terms = {"tenant": f"model {model}", "priority": 0.0, "deadline_s": None, "weight": 1.0}
        work = {"ideal_s": seconds, "ideal_gpu_s": seconds, "gpus": 1.0, "tasks": ("serve",)}
        self.schedule.arrived(JobFacts(id=f"r{number}", arrival_s=self.now, **terms, **work))
        self._seconds.append(seconds)
        self.waiting.append((number, model))
        self._write(Kind.ARRIVED, number)

    def _serve(self, decision):
        model = dict(self.waiting).get(getattr(decision, "request", None))
        if not isinstance(decision, Serve) or model is None or decision.gpu not in self.idle:
            raise IllegalDecision(f"at {self.now:g} s: {decision!r} names no waiting request and idle GPU")
        load_s = 0.0 if self.loaded[decision.gpu] == model else self._server.load_s
        self.waiting.remove((decision.request, model))
        self.idle.remove(decision.gpu)
        self.loaded[decision.gpu] = model
        heappush(self._ends, (self.now + load_s + self._seconds[decision.request], decision.request, decision.gpu))
        self._write(Kind.STARTED, decision.request, decision.request, decision.gpu)

    def _finish(self, request, gpu):
        self.idle.add(gpu)
        self._write(Kind.FINISHED, request, request, gpu)
        self._write(Kind.COMPLETED, request)


class InOrder:
    """Serve requests in order of arrival, on an idle GPU that has loaded the model, or else on the first idle GPU."""

    def decide(self, view):
        number, model = view.waiting[0]
        yield Serve(number, next((gpu for gpu, loaded in view.idle.items() if loaded == model), min(view.idle)))


class SameModel:
    """Serve requests for a loaded model first."""

    def decide(self, view):
        for number, model in view.waiting:
            for gpu, loaded in view.idle.items():
                if loaded == model:
                    return [Serve(number, gpu)]
        return [Serve(view.waiting[0][0], min(view.idle))]


POLICIES = Registry("policy", [Entry("in-order", InOrder), Entry("same-model", SameModel)], method="decide")


@dataclass(frozen=True)
class ModelServer(Scenario):
    """GPUs that serve requests. The fields are the keys of ``system`` in a configuration."""

    system: ClassVar[str] = "model-server"
    policies: ClassVar[Registry] = POLICIES
    gpus: int = 4
    models: int = 6
    requests: int = 500
    gap_s: float = 0.5
    load_s: float = 2.0

    @property
    def cluster(self):
        return Cluster.of({"A100-40": self.gpus}, per_node=1)

    def kernel(self, seed, *, record=True, on_arrivals=None):
        return ServerKernel(self, seed, on_arrivals)

    def facts(self, kernel):
        jobs = kernel.schedule.jobs
        span_s = jobs[-1].arrival_s if jobs else 0.0
        return {"cluster": self.cluster.name, "jobs": len(jobs), "span_s": span_s}

    def check(self):
        gpu_type("A100-40")
