"""Jobs drawn from a seed, and scenarios that build kernels of them."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from dagsim.errors import UnknownName, WorkloadError
from dagsim.families.ramp.api import RAMP_POLICIES, RampScenario, RampWorkload
from dagsim.families.ramp.graph import op_chain
from dagsim.families.ramp.kpis import kpis
from dagsim.families.ramp.workload import BETAS, PAPER_BETAS

GRAPHS = tuple(op_chain(length, rng=np.random.default_rng(length)) for length in (2, 3, 4))


def test_models_come_in_equal_numbers_in_random_order() -> None:
    workload = RampWorkload(GRAPHS, jobs=30)
    models = [job.graph.model for job in workload.draw(1)]
    assert set(Counter(models).values()) == {10}
    assert models != [job.graph.model for job in workload.draw(2)]


def test_jobs_arrive_at_even_gaps_or_at_random_ones_of_that_mean() -> None:
    even = RampWorkload(GRAPHS, jobs=4, gap_s=10.0).draw(0)
    assert [job.arrival_s for job in even] == [0.0, 10.0, 20.0, 30.0]
    drawn = RampWorkload(GRAPHS, jobs=4001, gap_s=10.0, poisson=True).draw(0)
    assert drawn[-1].arrival_s == pytest.approx(40_000, rel=0.05)


def test_another_distribution_of_beta_moves_neither_models_nor_arrivals() -> None:
    one, other = (RampWorkload(GRAPHS, jobs=20, beta=beta, poisson=True).draw(3) for beta in "AD")
    assert [(job.graph.model, job.arrival_s) for job in one] == [(job.graph.model, job.arrival_s) for job in other]
    assert [job.beta for job in one] != [job.beta for job in other]


@pytest.mark.parametrize(
    ("spec", "values"),
    [("fixed[value=0.4]", {0.4}), ("uniform[least=0.2,most=0.4,decimals=1]", {0.2, 0.3, 0.4})],
)
def test_betas_are_of_their_distribution(spec: str, values: set[float]) -> None:
    assert set(BETAS.create(spec)(np.random.default_rng(0), 200).tolist()) == values


def test_listed_betas_come_by_their_weights() -> None:
    betas = BETAS.create("listed[values=[0.25,0.5],weights=[3,1]]")(np.random.default_rng(0), 4000)
    assert (betas == 0.25).mean() == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("letter", PAPER_BETAS)
def test_the_papers_betas_lie_between_their_limits_on_a_grid(letter: str) -> None:
    betas = BETAS.create(PAPER_BETAS[letter])(np.random.default_rng(0), 5000)
    assert 0.1 <= betas.min() < betas.max() <= 1.0
    assert np.allclose(betas, np.round(betas, 2))


@pytest.mark.data
@pytest.mark.parametrize("letter", PAPER_BETAS)
def test_the_papers_betas_have_the_mean_and_spread_of_the_streams_of_ddls(data: Path, letter: str) -> None:
    paths = sorted((data / "golden/ddls").glob(f"arrivals_paper_beta{letter}_*.json"))
    ddls_betas = [row[2] for path in paths for row in json.loads(path.read_text())["jobs"]]
    betas = BETAS.create(PAPER_BETAS[letter])(np.random.default_rng(0), 20_000)
    assert betas.mean() == pytest.approx(fmean(ddls_betas), abs=0.015)
    assert betas.std() == pytest.approx(np.std(ddls_betas), abs=0.015)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("fixed[value=0]", "beta must be above 0"),
        ("uniform[least=0.5,most=0.2]", "the smaller one first, got 0.5 and 0.2"),
        ("listed[values=[0.5],weights=[1,2]]", "got 1 and 2"),
        ("listed[values=[0.5],weights=[0]]", "at least one above 0"),
    ],
)
def test_a_distribution_that_cannot_be_is_refused(spec: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        BETAS.create(spec)


@pytest.mark.parametrize(("field", "value"), [("jobs", 0), ("gap_s", 0.0)])
def test_a_workload_that_cannot_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(WorkloadError, match=field):
        RampWorkload(GRAPHS, **{field: value})  # type: ignore[arg-type]


def test_a_workload_without_graphs_is_refused() -> None:
    with pytest.raises(WorkloadError, match="at least one computation graph"):
        RampWorkload(())


def scenario(**changes: object) -> RampScenario:
    settings = {"jobs": 40, "gap_s": 0.02, "topology": "ramp[groups=2,racks=2,servers_per_rack=2]", "max_degree": 8}
    return RampScenario(**(settings | changes))  # type: ignore[arg-type]


def test_equal_seeds_give_equal_episodes_in_other_processes_too() -> None:
    one = scenario()
    other = pickle.loads(pickle.dumps(one))
    policy = RAMP_POLICIES.create("random")
    assert one.kernel(4).run(policy).log == other.kernel(4).run(policy).log
    assert one.kernel(4).run(policy).log != one.kernel(5).run(policy).log


def test_kernels_of_one_scenario_share_their_planner() -> None:
    one = scenario()
    assert one.kernel(1).planner is one.kernel(2).planner


def test_gpus_are_one_type_for_all_or_one_each() -> None:
    assert scenario(gpus=("T4",)).planner.fabric.cluster().gpus_by_type() == {"T4": 8}
    mixed = scenario(gpus=("T4", "V100") * 4).planner.fabric
    assert mixed.cluster().gpus_by_type() == {"T4": 4, "V100-16": 4}


def test_an_unknown_topology_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="did you mean 'torus'"):
        RampScenario(topology="tours")


def test_the_codec_of_a_scenario_reads_its_views() -> None:
    world = scenario()
    codec, kernel = world.codec(), world.kernel(1)
    conversation = kernel.decisions()
    view = next(conversation)
    for _ in range(10):
        seen = codec.encode(view)
        view = conversation.send(codec.decode(view, 0 if seen is None else len(seen.tokens) - 1))
    assert kernel.schedule.decisions == 10


def test_the_facts_of_an_episode_are_those_of_the_jobs_that_arrived() -> None:
    world = scenario(jobs=12, gap_s=0.5)
    kernel = world.kernel(1)
    assert world.facts(kernel)["span_s"] == 0.0
    kernel.run(RAMP_POLICIES.create("random"))
    facts = world.facts(kernel)
    assert (facts["jobs"], facts["span_s"]) == (12, pytest.approx(11 * 0.5))
    assert "figures" not in facts
    assert replace(world, figures=True).facts(kernel)["figures"] == kpis(kernel)


def test_skewed_betas_within_impossible_limits_are_refused() -> None:
    for limits in ("least=0.5,most=0.2", "least=0", "most=-1"):
        with pytest.raises(WorkloadError, match=r"must be above 0|the smaller one first"):
            BETAS.create(f"skewed[skewness=1,{limits}]")
