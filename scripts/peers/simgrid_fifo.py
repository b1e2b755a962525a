"""The jobs as actors of SimGrid's Python bindings, with a semaphore for the GPUs."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from protocol import read, write
from simgrid import Actor, Engine, Host, Semaphore, this_actor

PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><zone id="world" routing="Full"><host id="node" speed="1Gf"/></zone></platform>
"""

arrivals, works, servers = read(sys.argv[1])
ends = [0.0] * len(works)


def execute(number: int) -> None:
    gpus.acquire()
    this_actor.sleep_for(works[number])
    gpus.release()
    ends[number] = Engine.clock


def arrive() -> None:
    for number, arrival_s in enumerate(arrivals):
        this_actor.sleep_until(arrival_s)
        Actor.create("job", host, execute, number)


engine = Engine(["bench", "--log=root.threshold:error"])
with TemporaryDirectory() as folder:
    platform = Path(folder) / "platform.xml"
    platform.write_text(PLATFORM, encoding="utf-8")
    engine.load_platform(str(platform))
host = Host.by_name("node")
gpus = Semaphore(servers)
began = process_time()
Actor.create("arrivals", host, arrive)
engine.run()
write(sys.argv[2], ends, process_time() - began)
