"""Services: functions that a family provides and that code outside the family calls if the family
is present.

The code that calls a service declares it, with its signature: in this module for the core, in
``systems/cluster/services.py`` for the GPU cluster, and in the ``services.py`` of its folder for a
family. A family offers a service as an ``Entry`` of the same name in its group ``services``.
``tests/rules/test_services.py`` compares the signatures.

``services.holds_site(folder)`` calls the family's function, and raises an error that names the
family if the family is missing. ``services.names_of_agents.offered()`` returns the function, or
None if the family is missing.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from dagsim.family import missing_family, offered, required

if TYPE_CHECKING:
    from dagsim.cli.options import Experiment, SweepOutput
    from dagsim.config.schema import Config
    from dagsim.experiment.sweep_grid import SweepGrid
    from dagsim.metrics.standings import RunMetrics
    from dagsim.report.grid import TableFormat
    from dagsim.specs import Spec
    from dagsim.systems.seam import Policy, Scenario, System

_P = ParamSpec("_P")
_R = TypeVar("_R")


class FamilyService(Generic[_P, _R]):
    """A function that a family may offer, with the signature of ``declared``.

    If no family offers it, calling it raises ``UnknownName`` with the name of the missing family.
    """

    def __init__(self, declared: Callable[_P, _R]) -> None:
        self._name = declared.__name__
        update_wrapper(self, declared)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self.required()(*args, **kwargs)

    def required(self) -> Callable[_P, _R]:
        """Return the function that the family offers.

        Raises:
            UnknownName: The family is missing. The message names it.
        """
        function: Callable[_P, _R] = required(self._name, "services")
        return function

    def offered(self) -> Callable[_P, _R] | None:
        """Return the function that the family offers, or None if the family is missing."""
        return offered(self._name, "services")

    def missing(self) -> str:
        """Return a text that names the missing family. The result is empty if the family is
        present."""
        return missing_family("services", self._name)


@FamilyService
def bounds_of_runs(
    config: Config, lines: Sequence[RunMetrics], watch: Callable[[Iterable[int]], Iterable[int]] = iter
) -> dict[int, Any]:
    """Return the lower bound of the mean completion time for each seed of finished runs."""


@FamilyService
def shares_of_the_way(
    lines: Sequence[RunMetrics], bounds: Mapping[int, Any], reference: str | None = None
) -> dict[str, float]:
    """Return, for each policy, which fraction of the gap between the reference policy and the lower
    bound it closes.
    """


@FamilyService
def explain_waiting(
    job: str,
    state: Path,
    history: Path | None,
    asked: Experiment,
    policy: str | None,
    samples: int,
    top: int,
    table: TableFormat,
    *,
    as_json: bool,
) -> None:
    """Print why a job in a snapshot is waiting (``dagsim why --state``)."""


@FamilyService
def training_defaults(system: System | type[System]) -> Any:
    """Return the section ``train`` for a system."""


@FamilyService
def training_filled(section: Any, system: System | type[System]) -> Any:
    """Return the section ``train``, with the system's defaults for all keys that it leaves out."""


@FamilyService
def agent(scenario: Scenario, spec: Spec) -> Policy[Any, Any]:
    """Return a trained agent as a policy."""


@FamilyService
def names_of_agents() -> tuple[str, ...]:
    """Return the names of all trained agents."""


@FamilyService
def newest_agent(algorithm: str, root: Path, system: str) -> Path | None:
    """Return the checkpoint of the newest training run below ``root``, or None if there is none."""


@FamilyService
def algorithm_of(path: Path) -> str:
    """Return the algorithm that trained the agent in a file."""


@FamilyService
def shipped_agent(name: str, system: System | type[System]) -> Path:
    """Return the checkpoint of a shipped agent."""


@FamilyService
def shipped_agents(system: System | type[System]) -> dict[str, Path]:
    """Return the shipped checkpoints for a system, by algorithm."""


@FamilyService
def ray_rollouts(ray: Any, config: Config, factory: Any, lockstep: int) -> Any:
    """Return the roll-outs of a training run on a Ray cluster."""


@FamilyService
def training_events(folder: Path) -> Any:
    """Return a TensorBoard writer for the training run in ``folder``, or None if TensorBoard is not
    installed.
    """


@FamilyService
def training_sweep(grid: SweepGrid, output: SweepOutput, *, dry_run: bool) -> None:
    """Carry out a sweep over training runs, and print its table."""


@FamilyService
def training_caveats(config: Config, seeds: Iterable[int], checkpoint: Path, beliefs: bool = False) -> list[str]:
    """Return up to two warnings: one if the runs use windows of jobs on which the agent was
    trained, and one if the agent gets less information than in training and has no ``beliefs`` that
    replace the missing information.
    """


@FamilyService
def holds_site(folder: Path) -> bool:
    """Return True if a folder or file describes a site."""


@FamilyService
def import_site(
    paths: Sequence[Path],
    out: Path,
    *,
    gpus: str | None = None,
    timezone: str | None = None,
    keep_all: bool = False,
    strict: bool = False,
    overwrite: bool = True,
) -> list[str]:
    """Write a configuration for the site that the files describe. Return remarks on this
    configuration.
    """
