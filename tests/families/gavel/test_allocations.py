"""Allocations of Gavel's policies."""

from dagsim.families.gavel.allocations import AlloXShares
from dagsim.families.gavel.round_ledger import GavelJob, Situation


def test_allox_for_gangs_takes_the_oldest_jobs_and_gives_a_gang_its_part_of_the_time():
    jobs = {
        number: GavelJob(number, {"g": 1.0}, 1 + number % 2, 100.0 - number, arrival_s=number) for number in range(10)
    }
    shares = AlloXShares(gangs=True, oldest=0.2).allocate(Situation(jobs, {"g": 2}, 20.0))
    assert {key[0]: row["g"] for key, row in shares.items() if row["g"]} == {0: 1.0, 1: 0.5}
