"""Adding seeds until the intervals are narrow enough."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from dagsim.config.schema import Config, load_config
from dagsim.errors import InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.precision import Precise, rule_for, run_until_precise, seeds_for
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.store import Store
from dagsim.metrics.paired import Ending
from dagsim.seeds import WINDOWS, seeds_of

CONFIG = load_config(None, ["precision=0.02"])


class Machine:
    """Stands for ``kept``: a reference, and a policy whose ratio scatters by ``sd``."""

    def __init__(self, sd: float) -> None:
        self.sd, self.lines, self.batches = sd, list[CellRun](), list[int]()

    def __call__(self, seeds: Sequence[int]) -> list[CellRun]:
        self.batches.append(len(seeds))
        for seed in seeds:
            rng = Random(seed)
            base = rng.uniform(100, 1000)
            for policy, value in (("fifo", base), ("sjf", base * 0.8 * rng.lognormvariate(0, self.sd))):
                self.lines.append(CellRun(policy, seed, {}, {"jct_s.mean": value}))
        return self.lines


def run(tmp_path: Path, machine: Machine, config: Config = CONFIG) -> tuple[Store, Precise]:
    folder = RunStore.create(tmp_path, "baseline", config, argv=[], seeds=seeds_for(config, 20))
    return folder, run_until_precise(folder, config, machine)


def test_seeds_are_added_by_ten_until_the_interval_is_narrow(tmp_path: Path) -> None:
    machine = Machine(0.08)
    folder, result = run(tmp_path, machine)
    assert machine.batches[:2] == [20, 10]
    look = result.looks["sjf"]
    assert (look.ending, look.n) == (Ending.ENOUGH, sum(machine.batches))
    assert look.half_width <= 0.02
    assert next(iter(result.notes())) == f"precision: requested within 2% after {look.n} seeds"
    assert folder.manifest["seeds"] == list(seeds_for(CONFIG, look.n))
    assert Store.open(folder.path).manifest == folder.manifest


def test_a_hopeless_comparison_ends_with_its_forecast(tmp_path: Path) -> None:
    machine = Machine(0.9)
    _, result = run(tmp_path, machine)
    assert machine.batches == [20]
    assert result.looks["sjf"].ending is Ending.HOPELESS
    assert "seeds" in list(result.notes())[1]
    assert "needs about" in list(result.notes())[1]


def test_more_seeds_begin_with_the_same_ones() -> None:
    assert seeds_for(CONFIG, 500)[:20] == seeds_for(CONFIG, 20)


def test_all_of_a_trace_and_too_few_windows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("id,arrival_s,gpus,duration_s\n" + "".join(f"{i},{i},1,5\n" for i in range(100)))
    trace = f"workload={{kind: trace, path: {path}"
    with pytest.raises(InputError, match=r"a whole trace is only a single sample, .*--set workload\.window"):
        rule_for(load_config(None, [trace + "}", "precision=0.02"]))
    with pytest.raises(InputError, match="needs 20 seeds or windows to start with, but there are only 12"):
        rule_for(load_config(None, [trace + ", window: 8}", "precision=0.02"]))
    assert rule_for(load_config(None, [trace + ", window: 4}", "precision=0.02"])).cap == 25


def test_seeds_of_a_trace_are_those_of_its_windows() -> None:
    trace = load_config(None, ["workload={kind: trace, path: log.csv, window: 50}"])
    assert seeds_for(trace, 3) == seeds_of(WINDOWS, 3)
    assert seeds_for(CONFIG, 3) != seeds_of(WINDOWS, 3)
