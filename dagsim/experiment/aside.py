"""Logs of finished simulations whose later steps failed, such as the computation of metrics. The
next invocation continues from these logs instead of simulating again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dagsim.errors import RunFolderError
from dagsim.experiment.cell_run import CellRun, facts_of_run, timing_of
from dagsim.experiment.folder_files import json_text, read_json_file, write_whole
from dagsim.experiment.schedule_files import log_files, read_schedule
from dagsim.experiment.simulate import Outcome, Played
from dagsim.files import replaced
from dagsim.model import Cluster
from dagsim.systems.seam import EngineUse

_FACTS = ".facts.json"
"""Suffix of the file that describes the run of a log."""


class LogsAside:
    """The folder ``path`` with logs. Their names begin with the id of the cell."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return len(list(self.path.glob(f"*{_FACTS}")))

    def keep(self, run: CellRun) -> None:
        """Save the log of a run that cannot be finished, if there is one and the disk allows it."""
        if not {"npz", "npy"} & set(run.schedule) or not run.id:
            return
        with suppress(OSError):
            self.path.mkdir(exist_ok=True)
            for ending, content in run.schedule.items():
                with replaced(self.path / f"{run.id}.{ending}") as temporary:
                    temporary.write_bytes(content)
            facts = {"policy": run.policy, "seed": run.seed, "workload": run.workload, "timing": dict(run.timing)}
            write_whole(self.path / f"{run.id}{_FACTS}", json_text(facts))

    def drop(self, id_: str) -> None:
        """Remove the log of a cell that has now been finished."""
        with suppress(OSError):
            for path in self.path.glob(f"{id_}.*"):
                path.unlink()
            if self.path.exists() and not any(self.path.iterdir()):
                self.path.rmdir()


def log_of(played: Played | Outcome) -> CellRun:
    """Return the log of a simulation and the facts about its run, from which ``played_from`` can
    restore it."""
    run = CellRun(played.policy, played.seed, facts_of_run(played))
    return replace(run, timing=timing_of(played), schedule=log_files(played.schedule))


def played_from(stem: Path, cluster: Cluster) -> Played | None:
    """Read a simulation from the files that ``log_of`` wrote, whose names begin with ``stem``.
    Return None if there are no such files or they cannot be used.
    """
    facts = stem.with_name(f"{stem.name}{_FACTS}")
    if not facts.exists():
        return None
    try:
        run = read_json_file(facts)
        timing, schedule = run["timing"], read_schedule(stem, cluster)
        schedule.decision_s, schedule.decisions = timing["decision_s"], timing["decisions"]
        engine = EngineUse(**timing["engine"]) if "engine" in timing else None
        decider = run["workload"].pop("decider", {})
        return Played(schedule, run["policy"], run["seed"], run["workload"], timing["wall_s"], decider, engine)
    except (RunFolderError, KeyError, TypeError, AttributeError):
        return None
