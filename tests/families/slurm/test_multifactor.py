"""Slurm's multifactor priority, to its formulas."""

from __future__ import annotations

import pytest

from dagsim.errors import ConfigError
from dagsim.families.slurm.scheduler.priority_formulas import (
    Account,
    Factors,
    ShareTree,
    Weights,
    age,
    billing,
    decay_per_second,
    job_size,
    total_priority,
    truncated,
)


def tree(decay: float = 1.0) -> ShareTree:
    """Two departments of 60 and 40 shares with two users each, 1 : 1 and 1 : 3."""
    accounts = [Account("root", None, 1), Account("sci", "root", 60), Account("eng", "root", 40)]
    users = [("sci/a", "sci", 1), ("sci/b", "sci", 1), ("eng/c", "eng", 1), ("eng/d", "eng", 3)]
    return ShareTree([*accounts, *(Account(name, above, shares, True) for name, above, shares in users)], decay)


def test_a_priority_is_the_weighted_sum_less_nice_and_truncated() -> None:
    weights = Weights(age=1000, fair_share=5000, job_size=2000, partition=1500, qos=3000, tres={"gres/gpu": 1100})
    got = total_priority(Factors(0.5, 0, 0.25, 0.3125, 1, 0.2), weights, {"gres/gpu": 0.125, "cpu": 1}, nice=100)
    # 500 + 1250 + 625 + 1500 + 600 + 137.5 - 100
    assert (got, truncated(got), truncated(-3)) == (4512.5, 4512, 0)


def test_age_counts_to_its_greatest() -> None:
    assert [age(waited, 240) for waited in (-1, 0, 60, 240, 999)] == [0, 0, 0.25, 1, 1]


def test_job_size_is_of_nodes_and_cpus_and_may_favour_the_small() -> None:
    # 1 of 2 nodes, 32 of 128 cpus
    assert job_size(1, 32, 2, 128, 10, small=False, relative=False) == (0.5 + 0.25) / 2
    assert job_size(1, 32, 2, 128, 10, small=True, relative=False) == (0.5 + 0.75) / 2
    # a whole node of 64 cpus for 10 minutes, of 128
    assert job_size(1, 32, 2, 128, 10, small=False, relative=True) == 64 / 10 / 128
    assert job_size(1, 32, 2, 128, 10, small=True, relative=True) == 1 - 64 / 10 / 128


def test_billing_is_the_sum_or_the_largest_and_is_not_rounded() -> None:
    amounts, weights = {"cpu": 4, "mem": 1.5, "gres/gpu": 2}, {"cpu": 1, "mem": 0.25, "gres/gpu": 8}
    assert billing(amounts, weights) == 20.375
    assert billing(amounts, weights, largest=True) == 16
    assert billing(amounts, {}) == 4


def test_usage_halves_in_nearly_a_half_life() -> None:
    assert decay_per_second(180) ** 180 == pytest.approx(0.4994, abs=1e-4)
    assert decay_per_second(0) == 1


def test_usage_reaches_all_accounts_above_and_decays() -> None:
    shares = tree(decay=0.5)
    shares.charge("sci/a", 8, 2)  # 8 x 2 s x 0.5^2
    assert (shares.usage["sci/a"], shares.usage["sci"], shares.usage["root"], shares.usage["eng"]) == (4, 4, 4, 0)
    shares.pass_time(3)
    assert shares.usage["root"] == 0.5
    shares.charge("sci/a", 8, 0.5)  # less than a second counts nothing
    assert shares.usage["root"] == 0.5


def test_without_usage_all_users_of_a_fair_tree_are_first() -> None:
    assert set(tree().fair_tree().values()) == {1.0}


def test_a_fair_tree_ranks_accounts_before_their_users() -> None:
    shares = tree()
    for user, used in (("sci/a", 10), ("sci/b", 20), ("eng/c", 30), ("eng/d", 40)):
        shares.charge(user, used, 1)
    # sci: 0.6 / 0.3, eng: 0.4 / 0.7; in it d: 0.75 / (4/7) before c: 0.25 / (3/7)
    assert shares.fair_tree() == {"sci/a": 1, "sci/b": 0.75, "eng/d": 0.5, "eng/c": 0.25}


def test_users_that_tie_share_a_rank() -> None:
    shares = tree()
    for user in ("sci/a", "sci/b", "eng/d"):
        shares.charge(user, 10, 1)
    # c has used nothing; sci: 0.6 / (2/3) is below eng: 0.4 / (1/3)
    assert shares.fair_tree() == {"eng/c": 1, "eng/d": 0.75, "sci/a": 0.5, "sci/b": 0.5}


def test_accounts_that_tie_are_merged() -> None:
    shares = tree()
    for user, used in (("sci/a", 50), ("sci/b", 10), ("eng/c", 10), ("eng/d", 30)):
        shares.charge(user, used, 1)
    # sci 0.6 / 0.6 = eng 0.4 / 0.4: b (0.5 / (1/6) = 3) first, then c and d (0.25 / 0.25 = 0.75 / 0.75), then a
    assert shares.fair_tree() == {"sci/b": 1, "eng/c": 0.75, "eng/d": 0.75, "sci/a": 0.25}


def test_classic_fair_share_halves_where_usage_is_what_is_due() -> None:
    shares = ShareTree([Account("root", None, 1), Account("a", "root", 3, True), Account("b", "root", 1, True)], 1)
    shares.charge("a", 75, 1)
    shares.charge("b", 25, 1)
    assert shares.classic() == {"a": 0.5, "b": 0.5}
    assert shares.classic(damping=2)["a"] == pytest.approx(0.5**0.5)


def test_classic_fair_share_charges_the_own_usage_and_a_part_of_the_account_s() -> None:
    shares = tree()
    for user, used in (("sci/a", 30), ("sci/b", 30), ("eng/c", 10), ("eng/d", 30)):
        shares.charge(user, used, 1)
    # a: 0.3 + (0.6 - 0.3) x 1/2 = 0.45 of 0.3; c: 0.1 + (0.4 - 0.1) x 1/4 = 0.175 of 0.1
    assert shares.classic()["sci/a"] == pytest.approx(2 ** -(0.45 / 0.3))
    assert shares.classic()["eng/c"] == pytest.approx(2 ** -(0.175 / 0.1))


def test_classic_fair_share_charges_a_user_for_its_account() -> None:
    shares = tree()
    shares.charge("sci/a", 100, 1)
    # b used nothing: its effective usage is half of its account's, (1 - 0) x 1/2, of a share of 0.3
    assert shares.classic()["sci/b"] == pytest.approx(2 ** -(0.5 / 0.3))
    assert shares.classic()["eng/c"] == 1


def test_the_example_of_the_classic_page_comes_out() -> None:
    # classic_fair_share, "Example": A (B 30, C 10) has 40 shares, D (E 25, F 35) has 60
    tree = [("A", "root", 40), ("D", "root", 60), ("B", "A", 30), ("C", "A", 10), ("E", "D", 25), ("F", "D", 35)]
    users = [("1", "B"), ("2", "C"), ("3", "C"), ("4", "E"), ("5", "F")]
    accounts = [Account("root", None, 1), *(Account(*row) for row in tree)]
    shares = ShareTree([*accounts, *(Account(name, above, 1, True) for name, above in users)], 1)
    for user, used in (("1", 0.2), ("2", 0.25), ("4", 0.25)):
        shares.charge(user, used, 1)
    shares.usage["root"] = 1.0  # the page counts parts of the machine
    expected = {"1": 0.408479, "2": 0.022097, "3": 0.125, "4": 0.5, "5": 0.749154}
    assert shares.classic() == pytest.approx(expected, abs=1e-4)  # it rounds 0.14583 to 0.1458
    assert max(shares.classic(), key=shares.classic().__getitem__) == "5"


def test_the_first_of_an_account_shares_the_rank_of_a_user_it_ties_with() -> None:
    # fair_tree, "Ties": a user with the level fair share of a sibling account has the rank of its first user
    accounts = [Account("root", None, 1), Account("lab", "root", 1), Account("u", "root", 1, True)]
    shares = ShareTree([*accounts, Account("lab/a", "lab", 1, True), Account("lab/b", "lab", 1, True)], 1)
    for user, used in (("u", 40), ("lab/a", 10), ("lab/b", 30)):
        shares.charge(user, used, 1)
    assert shares.fair_tree() == {"u": 1, "lab/a": 1, "lab/b": pytest.approx(1 / 3)}


def test_an_account_that_turns_up_later_has_its_share() -> None:
    shares = tree()
    shares.add(Account("new", "root", 100))
    shares.add(Account("new/e", "new", 1, True))
    shares.charge("sci/a", 10, 1)
    assert shares.classic()["sci/a"] == pytest.approx(2 ** -((1 + 0) / (60 / 200 / 2)))
    with pytest.raises(ConfigError, match="its parent account 'x' does not exist"):
        shares.add(Account("y", "x", 1))


def test_a_tree_has_one_root_and_no_gaps() -> None:
    with pytest.raises(ConfigError, match="its parent account 'x' does not exist"):
        ShareTree([Account("root", None, 1), Account("a", "x", 1)], 1)
    with pytest.raises(ConfigError, match="one account, 'root'"):
        ShareTree([Account("top", None, 1)], 1)
