"""The function ``dagsim.plan``, which finds the smallest cluster that meets a target on a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dagsim.experiment.api import config_on_trace
from dagsim.families.capacity.size_search import SizePlan, Targets, plan_size


def plan(
    trace: str | Path,
    target: str | Sequence[str],
    types: Sequence[str] = (),
    *,
    cluster: str | None = None,
    policy: str | None = None,
    most_gpus: int | None = None,
    prices: Sequence[str] = (),
    price_file: str | Path | None = None,
    budget: float | None = None,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    name: str | None = None,
    out: str | Path = "results",
    on: str = "local",
) -> SizePlan:
    """Like ``dagsim plan``, find the smallest cluster (or the cheapest mix of GPU ``types``) that
    meets ``target`` on a log. ``target`` is one text, or several, such as ``wait_s.p95<600``. If a
    monthly ``budget`` is given, find the cluster with the best result for this budget instead.

    ``prices`` are texts such as ``H200=3.5`` (US dollars per GPU hour), and ``price_file`` is the
    YAML file that ``--price`` accepts. The results of all trials are stored below ``out``, so no
    trial is run twice. The other arguments are the same as for ``replay``.

    Raises:
        InputError: The trace cannot be read, or an argument is wrong.
        SimulationError: The policy failed.
    """
    # Check the target before the trace is read, because reading may take long.
    Targets.read([target] if isinstance(target, str) else target, bounded=budget is None)
    chosen = config_on_trace(trace, policy, cluster, config, settings, None, invented=False)
    file = None if price_file is None else Path(price_file)
    return plan_size(
        chosen,
        target,
        types,
        most_gpus,
        prices,
        price_file=file,
        budget=budget,
        name=name,
        out=Path(out),
        on=on,
    )
