"""``scripts/check_rest.py``: the rest of a schedule is its own rest, on random cases."""

from __future__ import annotations

import check_rest
import pytest

KILLS = "slurm-multifactor[backfill=false,preempt=qos,kill=limit]"


def older(seed: int) -> check_rest.Case:
    """The case of the seed as it was when a fault was found on it."""
    return check_rest.drawn(seed, more_forms=False)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("policy", ["easy", "las", "slurm-multifactor", "qssf"])
def test_the_rest_of_a_schedule_is_its_own_rest(policy: str, seed: int) -> None:
    assert not check_rest.differing(check_rest.drawn(seed), policy, seed).different


@pytest.mark.parametrize("seed", [910003, 910039, 910241, 910283, 2300471])
def test_priorities_and_arrays_do_not_depend_on_when_they_were_looked_at(seed: int) -> None:
    # Priorities were computed when somebody asked; times that come as a job arrives came after it.
    assert not check_rest.differing(older(seed), "slurm-multifactor[backfill=false]", seed).different


@pytest.mark.parametrize(
    ("policy", "seed"),
    [
        ("slurm-multifactor[backfill=false]", 632957113),  # the user of a job that arrived then counted too early
        ("slurm-multifactor", 632957149),  # a cycle of backfill began at the beginning
        ("slurm-multifactor", 632957151),
        ("gavel", 815000006),  # a wake-up was forgotten
        ("round-robin", 815000004),  # a run that ended then was not told
    ],
)
def test_a_policy_with_a_memory_takes_it_from_a_past_that_is_its_own(policy: str, seed: int) -> None:
    rests = check_rest.differing(older(seed), policy, seed)
    assert rests.judged
    assert not rests.different


def test_what_the_rules_withdraw_at_the_beginning_stops_nobody_from_hearing_of_starts() -> None:
    # An outage takes the nodes of two jobs for good at 18,000 s, when others start.
    assert not check_rest.differing(older(720419), "easy", 720419).different


@pytest.mark.parametrize(
    ("policy", "seed"),
    [
        ("allox", 820000195),  # a job that had been suspended ended too early
        ("slurm-multifactor", 820000217),  # backfill forgot that a job waited for a reservation
        (KILLS, 830000002),  # the limit of a job's last task was forgotten
        (KILLS, 830000020),  # a killed job's GPU was given to another
    ],
)
def test_what_happened_before_a_moment_is_known(policy: str, seed: int) -> None:
    rests = check_rest.differing(check_rest.drawn(seed), policy, seed)
    assert rests.judged
    assert not rests.different


@pytest.mark.parametrize(("policy", "seed"), [("fifo", 820000001), ("sjf-cp", 820001127), (KILLS, 830000009)])
def test_the_rest_from_a_log_of_batch_jobs_is_its_own_rest(policy: str, seed: int) -> None:
    rests = check_rest.differing_from_log(check_rest.drawn(seed), policy, seed)
    assert rests.judged
    assert not rests.different


def test_a_memory_by_other_numbers_of_runs_is_not_taken_over() -> None:
    # Two jobs started at once, and the log does not say which one first.
    rests = check_rest.differing_from_log(check_rest.drawn(830000013), "slurm-multifactor", 830000013)
    assert rests.forgets == "when the last backfill cycle began"


def test_a_placement_whose_memory_is_an_index_says_what_it_forgets() -> None:
    seed, policy = 860000080, "qssf[placement=comparative-advantage]"
    rests = check_rest.differing(check_rest.drawn(seed), policy, seed)
    assert not rests.different
    assert rests.forgets == "which tasks had been ready"


def test_policies_in_rounds_say_that_they_forget_lost_work() -> None:
    seed, policy = 870000011, "tiresias[placement=consolidate]"
    rests = check_rest.differing(check_rest.drawn(seed), policy, seed)
    assert not rests.different
    assert "lost their work" in rests.forgets
