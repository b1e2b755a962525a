"""What a run folder contains: its state, its finished runs, and their schedules (see ``store``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from dagsim.config.schema import Config
from dagsim.errors import CodeNotAllowed, InputError, RunFolderError
from dagsim.experiment.kept_files import (
    CLOCKED,
    CellRun,
    check_shape,
    read_json_file,
    read_lines,
    read_schedule,
    summary_of,
    value_in,
)
from dagsim.experiment.scenario import scenario_of, workload_label
from dagsim.model.cluster import Cluster
from dagsim.model.log import Schedule
from dagsim.sections import Foreign
from dagsim.systems.seam import EngineUse

RunState: TypeAlias = Literal["running", "done", "failed", "interrupted"]

RUNS, TIMING, FAILURES = "runs.jsonl", "timing.jsonl", "failures.jsonl"
_RUN = {"policy": str, "seed": int, "workload": dict, "metrics": dict, "engine": dict}
"""The types of values in a line (see ``check_shape``)."""


class Contents:
    """The files in a run folder, which this class only reads."""

    def __init__(self, path: Path, config: Config, manifest: dict[str, Any]) -> None:
        self.path = path
        self.config = config
        self.manifest = manifest

    @property
    def name(self) -> str | None:
        """The name that the user gave to the folder, or None."""
        return self.manifest.get("name")

    @property
    def label(self) -> str:
        """The name that the user gave to the folder, if any, and the workload."""
        workload = workload_label(self.config)
        return workload if self.name is None else f"{self.name}: {workload}"

    @property
    def state(self) -> RunState:
        """The state of the run according to ``status.json``."""
        status = read_json_file(self.path / "status.json")
        if not isinstance(status, dict) or status.get("state") not in get_args(RunState):
            raise RunFolderError(
                f"{self.path / 'status.json'}: the state must be one of {', '.join(get_args(RunState))}"
            )
        state: RunState = status["state"]
        return state

    def lines(self) -> list[CellRun]:
        """Return the finished runs, in order, ignoring an incomplete last line.

        Raises:
            RunFolderError: A file cannot be read.
        """
        runs, timing = read_lines(self.path / RUNS), read_lines(self.path / TIMING)
        for file, lines in ((RUNS, runs), (TIMING, timing)):
            for number, run in enumerate(lines, 1):
                check_shape(run, _RUN, f"{self.path / file}:{number}")
        return [
            CellRun(
                value_in(run, "policy", RUNS),
                value_in(run, "seed", RUNS),
                value_in(run, "workload", RUNS),
                value_in(run, "metrics", RUNS) | {CLOCKED: value_in(time, CLOCKED, TIMING)},
            )
            # not strict, because the time of the last run may be missing
            for run, time in zip(runs, timing, strict=False)
        ]

    def line(self, number: int) -> CellRun:
        """Return the finished run with this number, counted from 0.

        Raises:
            InputError: The folder has no finished run with that number.
        """
        lines = self.lines()
        if number >= len(lines):
            raise InputError(f"{self.path}: there is no run {number}; finished runs: {len(lines)}, counted from 0")
        return lines[number]

    def spec_of(self, name: str) -> str:
        """Return the policy that the user called ``name``. If there is none, ``name`` is itself a
        policy, and is returned unchanged.
        """
        return str((self.manifest.get("named") or {}).get(name, name))

    def failures(self) -> list[CellRun]:
        """Return a record of each policy that failed, with its error.

        Raises:
            RunFolderError: The file cannot be read.
        """
        return [
            CellRun(
                value_in(line, "policy", FAILURES),
                value_in(line, "seed", FAILURES),
                error=value_in(line, "error", FAILURES),
            )
            for line in read_lines(self.path / FAILURES)
        ]

    def whole(self) -> list[CellRun]:
        """Return the finished runs of all policies that did not fail. These runs can be compared.

        Raises:
            RunFolderError: A file cannot be read.
        """
        failed = {failure.policy for failure in self.failures()}
        return [run for run in self.lines() if run.policy not in failed]

    def to_dict(self) -> dict[str, Any]:
        """Return the state, the summary and the runs as plain values for JSON."""
        lines, failures = self.lines(), self.failures()
        failed = [{"policy": run.policy, "seed": run.seed, "error": run.error} for run in failures]
        return {
            "run": str(self.path),
            "state": self.state,
            "summary": summary_of(lines),
            **({"failures": failed} if failed else {}),
            "runs": [run.line for run in lines],
        }

    def engines(self) -> dict[str, EngineUse]:
        """Return the engine of each policy's first run. The result is empty for systems that have
        only one engine.
        """
        used: dict[str, EngineUse] = {}
        for line in read_lines(self.path / TIMING):
            if "engine" in line:
                used.setdefault(line["policy"], EngineUse(**line["engine"]))
        return used

    def schedule(self, number: int) -> Schedule:
        """Return the schedule of the finished run with this number.

        Raises:
            RunFolderError: The schedule is missing or damaged.
        """
        return read_schedule(self.path / "schedules" / f"{number:03d}", self.cluster())

    def cluster(self) -> Cluster:
        """Return the machines of the experiment.

        Raises:
            CodeNotAllowed: The system's class is outside dagsim and was not imported.
        """
        if isinstance(self.config.system, Foreign):
            raise CodeNotAllowed(
                f"{self.path}: the system {self.config.kind!r} is code outside dagsim, which was not "
                "imported; give --allow-code to import it (docs/security.md)"
            )
        return scenario_of(self.config).cluster
