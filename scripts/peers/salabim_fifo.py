"""The jobs as salabim's components, each of which requests a unit of one resource."""

from __future__ import annotations

import sys
from time import process_time

import salabim
from protocol import read, write

arrivals, works, servers = read(sys.argv[1])
ends = [0.0] * len(works)


class Job(salabim.Component):  # type: ignore[misc]
    """Waits for a GPU, holds it, gives it back."""

    def setup(self, number: int) -> None:
        self.number = number

    def process(self) -> None:
        self.request(gpus)
        self.hold(works[self.number])
        self.release(gpus)
        ends[self.number] = env.now()


began = process_time()
env = salabim.Environment(trace=False, yieldless=True)
gpus = salabim.Resource("gpus", capacity=servers, monitor=False)
for number, arrival_s in enumerate(arrivals):
    Job(name="", at=arrival_s, number=number)
env.run()
write(sys.argv[2], ends, process_time() - began)
