"""A training run in its run folder: learn, validate, keep the best agent, and test it once.

results/20261120T193000Z-train-ppo-s1-3fa9c1/
├── config.yaml, manifest.json, status.json, command.txt    as in every run folder
├── sweep-reference/  runs of heuristics on the validation seeds, stored as a sweep; missing if an
│                     earlier training run in the results folder made the same search, whose result
│                     is then in ../references/
├── progress.csv      one row per iteration
├── checkpoint.pt     the state for `dagsim train --resume`, written from before the first iteration on
├── replay/           the replay buffer of d3qn, rainbow and sac, kept until the last iteration
├── best.pt           the agent that was best on validation: `dagsim eval --policy ppo --checkpoint best.pt`
├── linear.pt         a linear policy on the same features
├── report_seeds.yaml the test seeds, which no other training run in the same folder uses
├── sweep-report/     runs of the agents and heuristics on the test seeds
├── report.csv        the comparison of these runs
└── plots/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from dagsim.config.dumping import plain
from dagsim.config.schema import Config
from dagsim.errors import ConfigError, RunFolderError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.executors import executor_for
from dagsim.experiment.ledger import claim_report_seeds
from dagsim.experiment.provenance import digest
from dagsim.experiment.scenario import sample_of, scenario_of, workload_label
from dagsim.experiment.simulate import measured
from dagsim.experiment.store import Store
from dagsim.experiment.training_log import Tracker, TrainingLog, has_rows
from dagsim.families.learning.algorithms import algorithm_name
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.checkpoint_file import read_plain, write_plain
from dagsim.families.learning.devices import device_named, on_cpu
from dagsim.families.learning.episode import EpisodeFactory, RewardConfig
from dagsim.families.learning.nets.actor import ActorNet
from dagsim.families.learning.nets.net_settings import LinearConfig
from dagsim.families.learning.observation_bounds import ObservationBounds
from dagsim.families.learning.off_policy.replay import ReplayArchive
from dagsim.families.learning.training.final_test import (
    KeptReference,
    PolicyRuns,
    References,
    best_heuristic,
    completed_jct_s,
    merit_in,
)
from dagsim.families.learning.training.learner import Learner, LearnerContext, clone, imitation, update_ema
from dagsim.families.learning.training.rollouts import (
    InProcessRollouts,
    ProcessRollouts,
    RngPurpose,
    Rollouts,
    evaluate_greedy,
    one_thread,
    spared,
)
from dagsim.families.learning.training.train_config import TrainConfig, WarmStart
from dagsim.families.learning.training.train_section import check_training
from dagsim.metrics import summarize
from dagsim.metrics.standings import Sample
from dagsim.model.log import Schedule
from dagsim.registry import Registry
from dagsim.sections import kind_of
from dagsim.seeds import REPORT, TRAIN, VALIDATION, seeds_of
from dagsim.specs import Spec

_PAYS = 10
"""Episodes run in the compiled engine if there are at least this many iterations. For fewer
iterations it does not pay off, because loading the engine takes a second, and compiling it, once
per machine, ten seconds."""
TRACKERS: Registry[Tracker] = Registry("tracker", method="add")
"""No tracker ships with dagsim; a user's own is ``module:attr``."""
_SEQUENCES_PER_SEED = 50_000
"""Number of job sequences that are reserved for each training seed."""


class Progress(NamedTuple):
    """The progress of a training run: how much of its current phase is done."""

    what: str
    done: int
    of: int
    ratio: float | None = None
    """The last validation's objective (mean completion time or blocking rate), divided by the
    reference's."""


Tell = Callable[[Progress], object]
"""Receives the progress; if it returns True, training ends after this iteration."""


def training_of(folder: Store) -> TrainConfig:
    """Return the settings of a training run, which may have been extended since it began."""
    train: TrainConfig = folder.config.training()
    iterations = (folder.manifest.get("plan") or {}).get("iterations")
    return train if iterations is None else replace(train, iterations=iterations)


class TrainingRun:
    """A training run, new or resumed, on any system. ``on`` is the executor for the runs of other
    policies. If it has a method ``rollouts``, it also runs the episodes. The default is ``workers``
    processes. ``device`` is where the network learns (``devices``). Only the CPU gives weights that
    are equal bit for bit.

    Raises:
        RunFolderError: The folder's checkpoint is missing, damaged or from another training run.
        ConfigError: The training configuration is not compatible with the system.
    """

    def __init__(
        self, folder: Store, workers: int = 1, tell: Tell | None = None, on: str | None = None, device: str = "cpu"
    ) -> None:
        self.folder = folder
        self.config: Config = folder.config
        self.train: TrainConfig = training_of(folder)
        self.scenario = scenario_of(self.config)
        check_training(self.train, self.scenario)
        if self.train.tracker is not None:
            TRACKERS.get(Spec.parse(self.train.tracker).name)
        self._varied = self.scenario.varied
        self.workers, self.device = workers, device_named(device)
        self._where = on or f"local:{workers}"
        self.reference = self.train.reference
        self.engine_reason = ""
        """Why episodes do not run in the compiled engine. It is empty if they do. The engine does
        not change the result."""
        self._factory = self._factory_of(self.train)
        self._tell = tell or (lambda progress: None)
        self.reference_jct_s = 1.0
        self.reference_merit = 1.0
        self.reference_merits: list[float] = []
        """The reference's objective on each validation seed, if every seed has its own unit."""
        self._best: float | None = None
        self._best_weights: dict[str, Any] = {}
        self._best_bounds: ObservationBounds | None = None
        self.judged: ActorNet | None = None
        """The network that is validated: the learner's network, or its average over iterations."""
        self._samples = self._seconds = 0.0
        self._checkpoint = folder.path / "checkpoint.pt"
        self._archive = ReplayArchive(folder.path / "replay")
        one_thread()

    @property
    def best(self) -> float:
        """The best objective so far on the validation seeds, divided by that of the reference
        heuristic. It is NaN before the first validation.
        """
        return float("nan") if self._best is None else self._best

    @property
    def validation(self) -> tuple[int, ...]:
        """The validation seeds."""
        return seeds_of(VALIDATION, self.train.validation_seeds)

    @property
    def report_seeds(self) -> tuple[int, ...]:
        """The test seeds. They are reserved for this training run when they are first used.

        A trace has a limited number of windows, so all training runs on a trace share the same test
        windows.
        """
        on_windows = sample_of(self.config) is Sample.WINDOW
        first = REPORT.start if on_windows else self.train.report_from
        return claim_report_seeds(self.folder.path, self.train.report_seeds, first)

    def run(self, *, resume: bool = False, init: Path | None = None) -> None:
        """Train to the end. ``resume`` continues from the checkpoint in the folder, and ``init``
        starts from the weights of an agent.

        Raises:
            KeyboardInterrupt: The user stopped the run. The checkpoint contains the last complete
                iteration.
            RunFolderError: Another process is writing to the folder, or it cannot be written to.
        """
        with self.folder.writing(), ExitStack() as stack:
            rollouts = stack.enter_context(self._rollouts())
            state = self._resumed() if resume else None
            engine = f"simpy, because {self.engine_reason}" if self.engine_reason else "compiled"
            self._tell(Progress(f"episodes: {engine}", 0, self.train.iterations))
            self.find_reference(state)
            context = self._context(rollouts, self.train)
            learner: Learner = self.train.algorithm.build(context)
            self.judged = learner.net if not self.train.ema_decay else deepcopy(learner.net)
            stack.enter_context(spared())
            done = 0 if state is None else int(state["iteration"])
            if state is not None:
                self._restore(learner, state)
            else:
                self._begin(learner, context, init)
                self._save(learner, 0)
            log = TrainingLog(self.folder.path, done, self._tracker(done))
            stack.callback(log.close)
            self._learn(learner, log, done)
            self._archive.remove()

    def _tracker(self, done: int) -> Tracker | None:
        """Create the tracker that the user has configured, if any."""
        name = self.train.tracker
        facts = {"folder": self.folder.path, "config": plain(self.config), "iterations": done}
        return None if name is None else TRACKERS.create(name, **facts)

    def _rollouts(self) -> AbstractContextManager[Rollouts]:
        """Return roll-outs on the executor if it can run episodes. Otherwise, return roll-outs in
        processes on this machine.
        """
        elsewhere = getattr(executor_for(self._where), "rollouts", None)
        if elsewhere is not None:
            rollouts: AbstractContextManager[Rollouts] = elsewhere(self.config, self._factory, self.train.lockstep)
            return rollouts
        if self.workers > 1:
            return ProcessRollouts(self._factory, self.workers, self.train.lockstep)
        return nullcontext(InProcessRollouts(self._factory, self.train.lockstep))

    def _begin(self, learner: Learner, context: LearnerContext, init: Path | None) -> None:
        assert self.judged is not None
        new = init is None or self._begin_with(learner, init)
        if new and self.train.cloned is not None:
            self._imitate(self.train.cloned, learner, context)
        self.judged.load_state_dict(learner.net.state_dict())

    def _restore(self, learner: Learner, state: Mapping[str, Any]) -> None:
        assert self.judged is not None
        learner.load(state["learner"])
        self.judged.load_state_dict(state["judged"] or learner.net.state_dict())
        replay = getattr(learner, "replay", None)
        if replay is not None and not self._ended(state["iteration"]):
            self._archive.read(replay, state["replay"])

    def _learn(self, learner: Learner, log: TrainingLog, done: int) -> None:
        train = self.train
        if self._best is None:
            self._validate()
        for iteration in range(done, train.iterations):
            if self._ended(iteration):
                break
            began = perf_counter()
            metrics = learner.iterate(iteration, self._progress(iteration))
            if self.judged is not None and self.judged is not learner.net:
                update_ema(self.judged, learner.net, train.ema_decay)
            spent = perf_counter() - began
            self._samples += metrics["samples"]
            self._seconds += spent
            row = {
                **metrics,
                "iteration": iteration + 1.0,
                "samples": self._samples,
                "seconds": self._seconds,
                "samples_per_s": metrics["samples"] / spent,
            }
            if (iteration + 1) % train.validate_every == 0 or self._ended(iteration + 1):
                row["ratio"] = self._validate()
            row["best_ratio"] = self._best or 1.0
            log.add(row)
            self._save(learner, iteration + 1)
            ratio = row.get("ratio", self._best)
            if self._tell(Progress("training", iteration + 1, self._expected(iteration + 1), ratio)) is True:
                break

    def _ended(self, iteration: int) -> bool:
        """Return True if training is complete, so that the iteration with this number does not run."""
        return self._progress(iteration) >= 1

    def _progress(self, iteration: int) -> float:
        """Return the progress of training from 0 to 1. This is the fraction of the iterations or of
        the minutes, whichever is larger."""
        share = iteration / self.train.iterations
        minutes = self.train.minutes
        return share if minutes is None else max(share, self._seconds / 60 / minutes)

    def _expected(self, done: int) -> int:
        """Estimate the final number of iterations. Assume that the remaining iterations take as
        long as those ``done``.
        """
        return max(done, round(done / self._progress(done)))

    def _validate(self) -> float:
        """Validate the greedy policy. Return its objective on the validation seeds, divided by that
        of the reference heuristic. Save the agent if it is the best so far.
        """
        assert self.judged is not None
        bounded = getattr(self.train.codec, "bounded", False)
        bounds = ObservationBounds() if bounded else None
        schedules = evaluate_greedy(on_cpu(self.judged), self._factory, self.validation, bounds=bounds)
        merits = np.array([self.merit_of(schedule) for schedule in schedules])
        if self.reference_merits:
            ratio = float(np.exp(np.mean(np.log(merits / np.array(self.reference_merits)))))
        else:
            ratio = float(np.mean(merits)) / self.reference_merit
        ratio = ratio if np.isfinite(ratio) else float("inf")
        if self._best is None or ratio < self._best:
            self._best, self._best_bounds = ratio, bounds
            self._best_weights = {name: value.cpu().clone() for name, value in self.judged.state_dict().items()}
            self._agent(ratio).save(self.folder.path / "best.pt")
        return ratio

    def merit_of(self, schedule: Schedule) -> float:
        """Return the metric by which the system ranks policies. Return NaN if the schedule lacks
        this metric.
        """
        if self._varied:
            return summarize(schedule, unfinished="drop").jct_s.mean
        return merit_in(measured(self.config, schedule).to_dict(), self.scenario.merit)

    def _agent(self, ratio: float) -> Checkpoint:
        assert self.judged is not None
        kernel = self.scenario.kernel(self.validation[0], record=False)
        about = {
            "reference": self.reference,
            "validation_ratio": ratio,
            "seed": self.config.seed,
            "cluster": str(kernel.schedule.cluster),
            "workload": workload_label(self.config),
            "traces": [digest(path) for path in self.config.whole_system.trace_paths],
            "knowledge": list(self.scenario.knowledge),
        }
        train, weights = self.train, self._best_weights
        return Checkpoint(
            algorithm_name(train.algorithm),
            self.judged.settings,
            train.codec,
            weights,
            about,
            self._best_bounds,
            self.scenario.system,
        )

    def _save(self, learner: Learner, iteration: int) -> None:
        assert self.judged is not None
        replay = getattr(learner, "replay", None)
        state = {
            "iteration": iteration,
            "learner": learner.state(),
            "replay": None if replay is None else replay.state(),
            "judged": None if self.judged is learner.net else self.judged.state_dict(),
            "reference": self.reference,
            "reference_jct_s": self.reference_jct_s,
            "reference_merit": self.reference_merit,
            "reference_merits": self.reference_merits,
            "best": self._best,
            "best_weights": self._best_weights,
            "samples": self._samples,
            "seconds": self._seconds,
        }
        if replay is not None:
            self._archive.write(replay)
        write_plain(self._checkpoint, state)
        if replay is not None:
            self._archive.prune(replay)

    def _resumed(self) -> dict[str, Any] | None:
        """Return the checkpoint. Return ``None`` if training was stopped before it wrote one,
        because then nothing is lost.
        """
        if not self._checkpoint.exists() and not has_rows(self.folder.path):
            return None
        state = read_plain(self._checkpoint)
        try:
            self._best, self._best_weights = state["best"], state["best_weights"]
            self._samples, self._seconds = state["samples"], state["seconds"]
            assert state["learner"]["net"]
        except (KeyError, TypeError, AssertionError):
            raise RunFolderError(f"{self._checkpoint}: not the checkpoint of a training run") from None
        return {"judged": None, "replay": None, **state}

    def find_reference(self, state: dict[str, Any] | None) -> None:
        if state is not None:
            self.reference, self.reference_jct_s = state["reference"], state["reference_jct_s"]
            self.reference_merit = state.get("reference_merit", self.reference_jct_s)
            self.reference_merits = state.get("reference_merits", [])
        elif self.reference == "best":
            references = References(self.folder.path.parent, self.config, self.validation)
            kept = references.find()
            if kept is None:
                policy, runs = best_heuristic(self.trials("best heuristic"), self.validation)
                self._measure(runs)
                kept = KeptReference(policy, self.reference_jct_s, self.reference_merit)
                references.keep(kept)
            self.reference, self.reference_jct_s, self.reference_merit = kept
        else:
            trials = self.trials("reference")
            self._measure(trials.run("reference", {self.reference: self.reference}, self.validation))

    def trials(self, purpose: str) -> PolicyRuns:
        """Return the object that runs policies in the run folder. Its progress lines begin with
        ``purpose``."""

        def tell(policy: str, done: int, of: int) -> None:
            self._tell(Progress(f"{purpose}: {policy}", done, of))

        return PolicyRuns(self.folder.path, self.config, self._where, tell)

    def _measure(self, runs: Sequence[CellRun]) -> None:
        """Derive the units of time and of the objective from the runs of the reference heuristic.
        The unit of time is 1 if the reference completed no job. The unit of the objective is 1 if
        the objective of the reference is 0.
        """
        if self._varied:
            self.reference_merits = [completed_jct_s(self.config, run) for run in runs]
            return
        jct_s = float(np.nanmean([completed_jct_s(self.config, run) for run in runs]))
        merit = float(np.mean([merit_in(run.metrics, self.scenario.merit) for run in runs]))
        self.reference_jct_s = jct_s if jct_s > 0 else 1.0
        self.reference_merit = merit if merit > 0 or np.isnan(merit) else 1.0

    def _begin_with(self, learner: Learner, init: Path) -> bool:
        """Load the weights of an agent, and return True if its codec shows fewer columns."""
        train = self.train
        agent = Checkpoint.load(init, self.scenario, codec=kind_of(train.codec), net=kind_of(train.net))
        if agent.net != (wanted := learner.net.settings):
            raise RunFolderError(f"{init}: the agent's net is {agent.net}, but the configuration sets {wanted}")
        try:
            learner.net.load_state_dict(agent.weights_for(train.codec))
        except ConfigError as error:
            raise RunFolderError(f"{init}: {error}") from None
        return agent.codec.features != train.codec.features

    def _imitate(self, how: WarmStart, learner: Learner, context: LearnerContext) -> None:
        self._tell(Progress(f"imitating {how.policy}", 0, self.train.iterations))
        observations, choices = imitation(self._factory, how.policy, context.seeds[: how.episodes])
        clone(learner.net, observations, choices, how, np.random.default_rng([self.config.seed, RngPurpose.IMITATION]))

    def _factory_of(self, train: TrainConfig) -> EpisodeFactory:
        reward = RewardConfig(train.reward)
        self.engine_reason = f"fewer than {_PAYS} iterations"
        if train.iterations >= _PAYS:
            self.engine_reason = self.scenario.why_no_episodes(train.codec, reward.terms)
        return EpisodeFactory(self.scenario, train.codec, reward, compiled=not self.engine_reason)

    def _context(self, rollouts: Rollouts, train: TrainConfig) -> LearnerContext:
        begin = self.config.seed * _SEQUENCES_PER_SEED % len(TRAIN)
        seeds = TRAIN[begin : begin + _SEQUENCES_PER_SEED]
        whole = self.scenario.episode_jobs
        unit_s, varied = self.reference_jct_s, self._varied
        return LearnerContext(train, rollouts, self.config.seed, unit_s, seeds, whole, varied, self.device)

    def linear(self) -> Checkpoint | None:
        """Train a linear policy for ``linear_iterations``, on the same features and with the same
        algorithm."""
        count = self.train.linear_iterations
        if not count:
            return None
        train = replace(self.train, net=LinearConfig())
        learner: Learner = train.algorithm.build(self._context(InProcessRollouts(self._factory, train.lockstep), train))
        if learner.net.settings != train.net:  # the algorithm uses its own network instead of the linear network
            return None
        for iteration in range(count):
            self._tell(Progress("a linear policy", iteration, count))
            learner.iterate(iteration, iteration / count)
        weights = {name: value.cpu().clone() for name, value in learner.net.state_dict().items()}
        about = {"seed": self.config.seed}
        return Checkpoint(
            algorithm_name(train.algorithm), train.net, train.codec, weights, about, None, self.scenario.system
        )
