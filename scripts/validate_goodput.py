"""Pollux's goodput model at recorded points: throughput, gradients, best batches and fits.

    python scripts/validate_goodput.py --points FILE --inputs DIR [--json]

``FILE`` has the points by application (``goodput_points.json.gz``), ``DIR`` the applications'
profiles, anywhere below it. With ``--json``:

    points            points compared
    worst_relative    largest relative difference, fits excepted
    wrong_integers    batches, accumulation steps and refusals that differ
    worst_fit         largest difference of a fit's objective to that of the recorded parameters

A point whose times are null is outside the measured range, and must raise. Exits with 1 unless the
relative difference is at most 1e-9, no integer differs, and fits are within 1e-4.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import command

from dagsim.errors import InputError, ModelError
from dagsim.families.elastic.goodput import (
    GoodputModel,
    GradientNoise,
    StepMeasurement,
    ThroughputModel,
    fit_objective,
    fit_throughput,
)
from dagsim.families.elastic.profiles import TrainingProfile, read_applications


class Differences(NamedTuple):
    """Differences from the recorded points."""

    points: int
    worst_relative: float
    wrong_integers: int
    worst_fit: float

    @property
    def holds(self) -> bool:
        """True if all differences are within their tolerances."""
        return self.worst_relative <= 1e-9 and not self.wrong_integers and self.worst_fit <= 1e-4


class _Point(NamedTuple):
    """One compared point: pairs of (ours, recorded)."""

    numbers: tuple[tuple[float, float], ...] = ()
    integers: tuple[tuple[int, int], ...] = ()
    fit: float = 0.0


def compared(points: Path, inputs: Path) -> Differences:
    """Compare all points of the file. Sections may be missing.

    Raises:
        InputError: It does not have points by application.
    """
    recorded = command.read_json(points)
    if not isinstance(recorded, dict) or not recorded:
        raise InputError(f"{points}: expected points by application")
    profiles = read_applications(inputs, list(recorded))
    with command.reading(points, "points of Pollux's model"):
        rows = [row for name, table in recorded.items() for row in _points(profiles[name], table)]
    return Differences(
        len(rows),
        max([_relative(ours, theirs) for row in rows for ours, theirs in row.numbers], default=0.0),
        sum(ours != theirs for row in rows for ours, theirs in row.integers),
        max([row.fit for row in rows], default=0.0),
    )


def _points(profile: TrainingProfile, table: Any) -> Iterator[_Point]:
    for epoch, progress in enumerate(table.get("progress_at_epoch", ())):
        yield _Point(((profile.progress_at(epoch), progress),))
    for placement, local, step_s, *rest in table.get("throughput", ()):
        try:
            times = profile.times(placement, local)
        except ModelError:
            yield _Point(integers=((True, step_s is None),))
        else:
            yield _Point(
                () if step_s is None else tuple(zip(times, (step_s, rest[0]), strict=True)),
                integers=((False, step_s is None),),
            )
    for batch, epoch, square, *others in table.get("grad", ()):
        try:
            noise, scale = profile.noise(batch, epoch), batch / profile.limits.initial
        except ModelError:
            yield _Point(integers=((True, square is None),))
            continue
        gains = (*noise, float(noise.gain(scale)), float(noise.gain(scale) / scale))
        numbers = () if square is None else tuple(zip(gains, (square, *others), strict=True))
        yield _Point(numbers, integers=((False, square is None),))
    if "fit" not in table:
        return
    fit = table["fit"]
    throughput, noise = ThroughputModel(*fit["params"]), GradientNoise(*table["goodput_grad_params"])
    model = GoodputModel(throughput, noise, profile.limits)
    for nodes, replicas, accumulate, goodput, local, steps in table.get("optimize", ()):
        choice = model.best(nodes, replicas, accumulate=accumulate)
        integers = (int(choice.local_batch), local), (int(choice.accumulation), steps)
        yield _Point(((float(choice.goodput), goodput),), integers)
    for nodes, replicas, local, steps, *recorded in table.get("evaluate", fit.get("evaluate", ())):
        samples = throughput.samples_per_s(nodes, replicas, local, steps)
        worth = model.efficiency(replicas * local * (steps + 1))
        ours = (float(samples), float(worth), float(model.goodput(nodes, replicas, local, steps)))
        yield _Point(tuple(zip(ours, recorded, strict=True)))
    for profiled, parameters in (("profile", "params"), ("single_profile", "single_params")):
        if profiled not in fit:
            continue
        rows = fit[profiled] if isinstance(fit[profiled][0], list) else [fit[profiled]]
        measured = [StepMeasurement(*row) for row in rows]
        fitted, theirs = fit_throughput(measured), ThroughputModel(*fit[parameters])
        yield _Point(fit=abs(fit_objective(fitted, measured) - fit_objective(theirs, measured)))


def _relative(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / abs(theirs) if theirs else abs(ours)


def _work(options: command.Options, say: command.Say) -> Differences:
    differences = compared(options.points, options.inputs)
    say(differences._asdict())
    return differences


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--points", type=Path, required=True, help="recorded points (.json or .json.gz)")
    parser.add_argument("--inputs", type=Path, required=True, help="a folder with Pollux's profiles")
    return command.run(parser, _work, holds=lambda row: row.holds, convert=lambda row: row._asdict())


if __name__ == "__main__":
    raise SystemExit(main())
