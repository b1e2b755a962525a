"""PAC-ML's graph network, and trainings on RAMP through the same stack as everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, RunFolderError
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import make_policy, run_policy
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.families.learning.nets.net_settings import ScorerConfig
from dagsim.families.learning.off_policy.replay import ReplayBuffer
from dagsim.families.learning.training.rollouts import EpisodeSteps
from dagsim.families.learning.training.session import finish
from dagsim.families.learning.training.trainer import TrainingRun
from dagsim.families.pac_ml.pac_ml_net import PacMl, Round
from dagsim.families.pac_ml.pac_ml_settings import PacMlConfig
from dagsim.families.ramp.api import RampObservation, RampScenario
from dagsim.families.ramp.codecs import PartitionConfig
from dagsim.systems import system_named
from dagsim.systems.seam import Conversation

SMALL = (
    "system={kind: ramp, jobs: 8, gap_s: 0.3, max_degree: 4, topology: 'ramp[groups=2,racks=2,servers_per_rack=1]'}",
    "policy=on_time",
    "train.reference=on_time",
    "train.rivals=[max]",
    "train.iterations=2",
    "train.validate_every=1",
    "train.validation_seeds=2",
    "train.report_seeds=2",
    "train.time_constant_s=[0.3, 0.6]",
)


def observations(count: int = 6) -> list[RampObservation]:
    world = RampScenario(topology="ramp[groups=2,racks=2,servers_per_rack=1]", jobs=20, gap_s=0.5, max_degree=4)
    conversation: Conversation[Any, Any] = Conversation(world.kernel(1))
    codec, policy, sample = PartitionConfig(blocks=2).build(), world.policies.create("on_time"), []
    while conversation.view is not None and len(sample) < count:
        seen = codec.encode(conversation.view)
        if seen is not None:
            sample.append(seen)
        conversation.answer(policy.decide(conversation.view))
    return sample


def net() -> PacMl:
    torch.manual_seed(0)
    network = PacMlConfig(hidden=8).build(PartitionConfig())
    assert isinstance(network, PacMl)
    torch.nn.init.normal_(network.score[-1].weight)  # type: ignore[arg-type]
    return network


def test_a_batch_is_scored_as_its_observations_one_by_one() -> None:
    network, seen = net(), observations()
    together = network(network.stack(seen))
    apart = torch.cat([network(network.stack([observation])) for observation in seen])
    assert torch.allclose(together, apart, atol=1e-6)
    assert together.std() > 0


def test_a_graph_is_embedded_once_however_often_it_is_seen() -> None:
    network, seen = net(), observations()
    batch = network.stack(seen + seen)
    assert batch.graphs.many == len({id(observation.ops) for observation in seen}) < len(seen)
    picked = network.store(seen).batch(np.array([3, 0]))
    assert torch.allclose(network(picked), torch.cat([network(network.stack([seen[at]])) for at in (3, 0)]), atol=1e-6)


def test_an_operation_hears_its_parents_and_itself() -> None:
    seen = observations(1)[0]
    rounds, graphs = Round(seen.ops.shape[1], seen.deps.shape[1], 4, 3), net().stack([seen]).graphs
    with torch.no_grad():
        rows = rounds(graphs.ops, graphs)
        of_op, of_dep = rounds.of_op(graphs.ops), rounds.of_dep(graphs.deps)
    child = int(seen.targets[0])
    into = np.flatnonzero(seen.targets == child)
    messages = [torch.cat([of_op[child], torch.zeros(4)])]
    messages += [torch.cat([of_op[seen.sources[at]], of_dep[at]]) for at in into]
    with torch.no_grad():
        expected = rounds.reduce(torch.stack(messages)).mean(dim=0)
    assert torch.allclose(rows[child], expected, atol=1e-6)


def test_the_graph_changes_the_scores() -> None:
    network, seen = net(), observations(1)[0]
    other = seen._replace(ops=np.ascontiguousarray(seen.ops[:, ::-1]))
    assert not torch.allclose(network(network.stack([seen])), network(network.stack([other])))


def test_other_codecs_have_no_graph_for_it() -> None:
    with pytest.raises(ConfigError, match="net 'pac_ml' reads observations with the fields ops and deps"):
        PacMlConfig().build(CandidatesConfig())


@pytest.mark.parametrize(
    "algorithm",
    [
        "{kind: ppo, sequences: 1, replicas: 2, epochs: 1}",
        "{kind: ppo, advantage: critic, sequences: 1, replicas: 1, epochs: 1}",
        "{kind: d3qn, episodes: 1, updates: 2, minibatch: 8}",
    ],
)
def test_algorithms_train_it_on_ramp(tmp_path: Path, algorithm: str) -> None:
    config = load_config(None, [*SMALL, f"train.algorithm={algorithm}", "train.codec={kind: partition, blocks: 2}"])
    run = TrainingRun(RunStore.create(tmp_path, "train", config, argv=[], label="small"))
    run.run()
    agent = Checkpoint.load(run.folder.path / "best.pt", system_named("ramp"))
    assert isinstance(agent.net, PacMlConfig)
    state = torch.load(run.folder.path / "checkpoint.pt", weights_only=True)
    torch.manual_seed(config.seed)
    before = agent.net.build(agent.codec).state_dict()
    learned = state["learner"]["net"]
    assert any(not torch.equal(value, before[name]) for name, value in learned.items())
    assert all(torch.isfinite(value).all() for value in learned.values())


def test_an_agent_is_judged_by_blocking_beside_heuristics(tmp_path: Path) -> None:
    settings = [*SMALL, "train.algorithm={kind: ppo, sequences: 1, replicas: 2}", "train.iterations=1"]
    settings += ["train.warm_start={policy: on_time, episodes: 2, epochs: 20, smoothing: 0.0}"]
    config = load_config(None, settings)
    run = TrainingRun(RunStore.create(tmp_path, "train", config, argv=[], label="small"))
    run.run()
    lines = finish(run)
    assert {line.policy for line in lines} == {"ppo", "on_time", "max"}
    path = run.folder.path / "best.pt"
    spec = f'ppo[checkpoint="{path}"]'
    judged = {(line.policy, line.seed): line.metrics["blocking_rate"] for line in lines}
    for seed in run.report_seeds:
        alone = run_policy(config, spec, seed)
        assert alone.summary.blocking_rate == judged["ppo", seed]
    direct = scenario_of(config)
    kernel = direct.kernel(run.report_seeds[0])
    kernel.run(make_policy(direct, spec))  # type: ignore[attr-defined]
    assert kernel.schedule.log == run_policy(config, spec, run.report_seeds[0]).schedule.log
    assert run.best < 2  # the blocking rate over the reference's, not a time over a time


def test_the_codec_of_another_system_is_refused(tmp_path: Path) -> None:
    config = load_config(None, [*SMALL, "train.codec=candidates", "train.net=scorer"])
    with pytest.raises(ConfigError, match="'candidates' is a codec of the system 'cluster', but the system is 'ramp'"):
        TrainingRun(RunStore.create(tmp_path, "train", config, argv=[], label="small"))


def test_an_agent_of_ramp_decides_nowhere_else(tmp_path: Path) -> None:
    network = net()
    path = tmp_path / "agent.pt"
    Checkpoint("ppo", PacMlConfig(hidden=8), PartitionConfig(), network.state_dict(), {}, None, "ramp").save(path)
    with pytest.raises(RunFolderError, match="trained for the system 'ramp', so it cannot schedule 'cluster'"):
        Checkpoint.load(path, system_named("cluster"))
    loaded = Checkpoint.load(path, system_named("ramp")).network()
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in loaded.state_dict().items())


def test_other_nets_read_the_rows_alone() -> None:
    torch.manual_seed(0)
    scorer = ScorerConfig().build(PartitionConfig())
    choices, _ = scorer.act(scorer.stack(observations()), None)
    assert len(choices) == 6


def test_settings_that_cannot_be_are_named() -> None:
    with pytest.raises(ConfigError, match="net: message must be positive, got 0"):
        PacMlConfig(message=0)


def test_a_replay_gives_back_graphs_as_they_were() -> None:
    seen = observations()
    steps = EpisodeSteps(seen, [0] * 6, [0.0] * 6, list(range(7)), [1.0] * 6)
    kept, read = (ReplayBuffer(100, net=net()) for _ in range(2))
    kept.add(steps, np.full(6, 0.9), 1, 1.0)
    read.load(kept.state(), [kept.since(0)])
    one, other = (buffer.draw(4, np.random.default_rng(0)).batch for buffer in (kept, read))
    network = net()
    assert torch.equal(network(one), network(other))
    assert one.graphs.many == other.graphs.many
