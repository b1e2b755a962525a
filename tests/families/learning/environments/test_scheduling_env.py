from __future__ import annotations

import copy
import warnings
from itertools import count

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, InputError
from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.families.learning.environments.env_settings import EnvConfig
from dagsim.families.learning.environments.make_env import make_env
from dagsim.families.learning.environments.scheduling_env import SchedulingEnv
from dagsim.metrics import summarize
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import cluster_scenario_of

SMALL = ["workload.count=12"]
PRESETS = ["flat", "dict", "candidates", "graph"]
LEVELS = ["job", "task", "task_type", "task_type_par"]


def small(**changes: object) -> SchedulingEnv:
    env = make_env("heterogeneous-dag", SMALL, **changes)
    assert isinstance(env, SchedulingEnv)
    return env


def played(env: SchedulingEnv, seed: int, legal_only: bool = True) -> tuple[float, dict[str, object]]:
    """An episode of drawn actions: the sum of its rewards, and its last info."""
    rng = np.random.default_rng(seed)
    _, info = env.reset(seed=seed)
    total = 0.0
    for _ in count():
        actions = np.flatnonzero(info["action_mask"]) if legal_only else np.arange(env.config.slots)
        _, reward, terminated, truncated, info = env.step(rng.choice(actions))
        total += float(reward)
        if terminated or truncated:
            return total, info
    raise AssertionError


@pytest.mark.parametrize("observation", PRESETS)
@pytest.mark.parametrize("level", LEVELS)
def test_gymnasiums_checker_is_content(observation: str, level: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unbounded boxes are meant
        check_env(small(observation=observation, level=level), skip_render_check=True)


def test_an_env_and_its_fields_are_not_given_together() -> None:
    with pytest.raises(ConfigError, match="give either env or its fields one by one, but got env and level"):
        make_env(env=EnvConfig(), level="job")


def test_it_is_made_by_name() -> None:
    env = gymnasium.make("dagsim.envs:dagsim/Scheduling-v0", config="heterogeneous", settings=SMALL, level="task")
    _, info = env.reset(seed=3)
    assert info["action_mask"].sum() > 0
    env.close()


@pytest.mark.parametrize("level", LEVELS)
def test_rewards_add_up_whatever_is_chosen(level: str) -> None:
    env = small(level=level, reward={"job_seconds": 1.0}, reward_scale=1.0)
    total, info = played(env, 5)
    assert env.simulation is not None
    assert total == pytest.approx(-12 * summarize(env.simulation.schedule).jct_s.mean)
    assert info["mean_jct_s"] == pytest.approx(-total / 12)
    assert info["mean_jct_s"] == summarize(env.simulation.schedule).jct_s.mean


@pytest.mark.parametrize("level", ["task", "task_type", "task_type_par"])  # "job" picks the task itself
@pytest.mark.parametrize(
    ("policy", "codec"),
    [("sjf", {}), ("eft-wait[theta=1.0,order=task]", {}), ("fifo-fit", {"select": "oldest", "window": 4000})],
)
def test_a_heuristic_through_the_environment_writes_the_same_log(
    policy: str, codec: dict[str, object], level: str
) -> None:
    config = load_config(None, ["workload=heterogeneous-dag", "workload.count=25"])
    direct = cluster_scenario_of(config).kernel(7).run(POLICIES.create(policy))
    env = make_env(config, slots=4096, level=level, codec=CandidatesConfig(**codec))  # type: ignore[arg-type]
    env.reset(seed=7)
    decide = POLICIES.create(policy).decide
    done = False
    while not done:
        decision = next(iter(decide(env.view)), None)  # type: ignore[arg-type]
        action = env.action_of(decision)
        assert action is not None
        _, _, done, _, info = env.step(action)
    assert info["illegal_actions"] == 0
    assert env.simulation is not None
    assert env.simulation.schedule.log == direct.log


def test_a_choice_beyond_the_slots_has_no_action() -> None:
    env = small(slots=2)  # one choice and to wait
    env.reset(seed=7)
    assert env.view is not None
    assert len(env.codec.codec.rows) > 1
    actions = [env.action_of(*env.codec.decode(env.view, row)) for row in range(len(env.codec.codec.rows))]
    assert actions == [0] + [None] * (len(actions) - 1)
    assert env.action_of(None) == 1


def test_the_mask_is_in_three_places() -> None:
    env = small(observation="dict")
    observation, info = env.reset(seed=1)
    assert (observation["action_mask"] == info["action_mask"]).all()
    assert (env.action_masks() == info["action_mask"].astype(bool)).all()


def test_an_illegal_action_falls_back_and_is_counted() -> None:
    with pytest.warns(UserWarning, match="is not legal now") as warned:
        _, info = played(small(), 2, legal_only=False)
    assert info["illegal_actions"] > len(warned) == 1
    assert "mean_jct_s" in info


@pytest.mark.filterwarnings("ignore:.*is not legal now")
def test_an_illegal_action_is_the_first_choice_and_never_to_wait() -> None:
    first, illegal = small(), small()
    for env in (first, illegal):
        env.reset(seed=1)
    for _ in range(30):
        masks = illegal.action_masks()
        forbidden = int(np.flatnonzero(~masks)[0])
        _, *rewarded, _ = first.step(0)
        assert list(illegal.step(forbidden)[1:4]) == rewarded
        if any(rewarded[1:]):
            break


def test_waiting_is_legal_only_while_something_is_to_happen() -> None:
    env = make_env("batch", ["workload.count=3"])
    _, info = env.reset(seed=1)
    assert info["action_mask"][-1] == 0  # all jobs are there, nothing runs
    _, _, _, _, info = env.step(0)
    assert info["action_mask"][-1] == 1


def test_the_same_seed_plays_the_same_and_another_another() -> None:
    assert played(small(), 4)[0] == played(small(), 4)[0]
    assert played(small(), 4)[0] != played(small(), 5)[0]


def test_cut_off_is_not_over() -> None:
    env = small(max_steps=3)
    env.reset(seed=1)
    results = [env.step(int(np.flatnonzero(env.action_masks())[0])) for _ in range(3)]
    assert [(terminated, truncated) for _, _, terminated, truncated, _ in results] == [(False, False)] * 2 + [
        (False, True)
    ]
    _, info = played(small(horizon_s=1.0), 1)
    assert "mean_jct_s" not in info


def test_over_at_the_last_step_allowed_is_over_not_cut_off() -> None:
    def ends(env: SchedulingEnv) -> list[tuple[bool, bool]]:
        env.reset(seed=1)
        flags = [(False, False)]
        while flags[-1] == (False, False):
            flags.append(env.step(int(np.flatnonzero(env.action_masks())[0]))[2:4])
        return flags

    free = ends(small())
    assert free[-1] == (True, False)
    assert ends(small(max_steps=len(free) - 1)) == free


def test_parallelism_starts_some_instances_only() -> None:
    env = make_env("map-reduce", ["workload.count=2"], level="task_type_par")
    env.reset(seed=1)
    env.step(0)
    assert env.simulation is not None
    started = [row[6] for row in env.simulation.schedule.log.since(0) if row[0] == 3]
    assert started[0] == 1


def test_the_column_of_parallelism_says_which_part_starts() -> None:
    for level, parts in (("task_type", {1.0}), ("task", {1.0}), ("task_type_par", {0.0, 0.5, 1.0})):
        env = make_env("map-reduce", ["workload.count=2", "workload.sizes.gang=false"], level=level)
        assert isinstance(env, SchedulingEnv)
        seen, info = env.reset(seed=1)
        starts = int(info["action_mask"][:-1].sum())
        assert set(seen["tokens"][:starts, -1].tolist()) == parts
        assert not seen["tokens"][starts:, -1].any()
        again = copy.deepcopy(env.codec).encode(env.view)
        np.testing.assert_array_equal(again.tokens[:starts], seen["tokens"][:starts])


@pytest.mark.parametrize("vector", [gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv])
def test_it_works_in_vectors(vector: type[gymnasium.vector.VectorEnv]) -> None:  # type: ignore[type-arg]
    envs = vector([small, small])  # type: ignore[call-arg]
    observations, infos = envs.reset(seed=[1, 2])
    assert observations["tokens"].shape[0] == 2
    for _ in range(5):
        actions = [int(np.flatnonzero(mask)[0]) for mask in infos["action_mask"]]
        _, rewards, _, _, infos = envs.step(np.array(actions))
        assert (rewards <= 1e-6).all()
    envs.close()


def test_stable_baselines_checker_is_content() -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for observation in ("flat", "candidates"):
            checker.check_env(small(observation=observation))


def test_maskable_ppo_learns_on_it() -> None:
    contrib = pytest.importorskip("sb3_contrib")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = contrib.MaskablePPO("MlpPolicy", small(observation="flat"), n_steps=64, batch_size=32)
        model.learn(128)


def test_wrong_settings_are_refused() -> None:
    for changes, message in (
        ({"level": "jobs"}, "level must be one of job, task"),
        ({"observation": "image"}, "observation must be one of flat, dict"),
        ({"slots": 1}, "must be 2 or more"),
        ({"max_steps": 0}, "max_steps must be 1 or more"),
        ({"reward": {"fun": 1.0}}, "unknown reward term 'fun'"),
        ({"reward": "jct"}, "reward: must map terms to weights, such as .*; got 'jct'"),
        ({"reward": {"idle": "1"}}, "the weight of 'idle' must be a number, got '1'"),
        ({"codec": ["flat"]}, "codec: must be a name, a mapping with a kind"),
        ({"workload": "steady"}, "no argument 'workload'; pass the workload's name as config="),
        ({"observations": "dict"}, "make_env: no argument 'observations'; did you mean 'observation'"),
        ({"env": {"level": "job"}}, "env: must be an EnvConfig"),
    ):
        with pytest.raises(InputError, match=message):
            small(**changes)
    with pytest.raises(InputError, match="did you mean 'heterogeneous-dag'"):
        make_env("heterogenous-dag")
    with pytest.raises(InputError, match=r"settings: give a list of texts, such as .*; got 'seed=1'"):
        make_env("heterogeneous-dag", "seed=1")


def test_it_says_where_it_is() -> None:
    env = small(render_mode="ansi")
    assert env.render() == "not begun"
    env.reset(seed=1)
    assert "ready" in env.render()


def test_it_says_when_it_is_over() -> None:
    env = small(render_mode="ansi")
    env.reset(seed=1)
    over = False
    while not over:
        _, _, over, _, _ = env.step(int(np.flatnonzero(env.action_masks())[0]))
    assert env.render() == "over"


def test_pictures_show_the_gpus_that_are_held_now() -> None:
    env = small(render_mode="rgb_array")
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.render()
    env.reset(seed=1)
    empty = env.render()
    for _ in range(4):
        env.step(int(np.flatnonzero(env.action_masks())[0]))
    held = env.render()
    assert empty.shape == held.shape == (540, 960, 3)
    assert empty.dtype == np.uint8
    colour = [np.ptp(image[74:410, 200:].astype(int), axis=2).max() for image in (empty, held)]
    assert colour[0] < 20 < 100 < colour[1]  # grey cells at first, then those of a job


def test_a_window_shows_every_step_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    from dagsim.families.learning.environments.episode_env import Screen

    shown = []
    monkeypatch.setattr(Screen, "show", lambda self, image: shown.append(image.shape))
    env = small(render_mode="human")
    env.reset(seed=1)
    env.step(int(np.flatnonzero(env.action_masks())[0]))
    assert shown == [(540, 960, 3)]
    env.close()


def test_another_render_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="render_mode must be one of"):
        small(render_mode="film")
