"""The jobs on ciw's queueing network: one node with as many servers as there are GPUs."""

from __future__ import annotations

import sys
from itertools import pairwise
from math import inf
from time import process_time

import ciw
from protocol import read, write

arrivals, works, servers = read(sys.argv[1])


def simulate() -> list[float]:
    gaps = [arrivals[0], *(later - former for former, later in pairwise(arrivals)), inf]
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential(gaps)],
        service_distributions=[ciw.dists.Sequential(works)],
        number_of_servers=[servers],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(len(works), method="Finish")
    records = sorted(simulation.get_all_records(), key=lambda record: record.arrival_date)
    return [record.exit_date for record in records]


began = process_time()
ends = simulate()
write(sys.argv[2], ends, process_time() - began)
