"""Fit a goodput model to each measured application of Pollux, as ``elastic/tasks.py`` ships them.

    python scripts/fit_goodput.py --inputs DIR [--json]

``DIR`` has the applications' profiles anywhere below it. The seven parameters of the throughput are
fitted to all measured iterations. The noise of the gradient is one number (variance over square):
the one with which a whole training takes as many iterations as measured, at the validated batch
that is nearest to the middle of the range (on a logarithmic scale).
"""

from __future__ import annotations

from math import log, sqrt
from pathlib import Path
from typing import Any

import command

from dagsim.families.elastic.goodput import fit_throughput
from dagsim.families.elastic.profiles import TrainingProfile, read_applications


def noise_of(profile: TrainingProfile) -> float:
    """Variance over square of the gradient's noise that gives the measured number of iterations."""
    limits, epochs = profile.limits, profile.application.epochs
    middle = log(sqrt(limits.initial * limits.largest))
    batch = min(profile.validated, key=lambda size: (size <= limits.initial, abs(log(size) - middle)))
    gain = profile.progress_at(epochs) / profile.iterations(batch, epochs)
    scale = batch / limits.initial
    # gain = (noise + 1) / (noise / scale + 1); it lies between 1 and the scale
    return max(gain - 1, 0.0) / max(1 - gain / scale, 1e-3)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    models = {}
    for name, profile in read_applications(options.inputs).items():
        models[name] = [*fit_throughput(profile.measurements), noise_of(profile)]
        say({name: models[name]})
    return {"models": models}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--inputs", type=Path, required=True, help="a folder with Pollux's profiles")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
