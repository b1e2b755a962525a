"""Every policy on adverse random cases, each log read by a checker that uses nothing of the kernel.

    python scripts/stress.py [--cases 3000] [--from 0] [--policy NAME ...] [--json]

Case n is drawn from seed n (``dagsim.testing.random_case``) and played by the policies in turn, those with a placement
with one placement after the other. The script prints the number of policies and cases, and every violation:
a fault that the checker (``dagsim.testing.violations``) finds in a log, an illegal decision, a stall that no departed
node explains, or a traceback. It exits with 1 if there is any.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

import command

from dagsim.errors import DagsimError
from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES
from dagsim.testing import random_case


def specs() -> list[str]:
    """Every policy that needs no parameter, and all placements, spread over the policies that take one."""
    names, placements = [], PLACEMENT_RULES.names()
    for name in POLICIES.names():
        parameters = inspect.signature(POLICIES.get(name)).parameters  # type: ignore[arg-type]
        if any(one.default is one.empty and one.kind is not one.VAR_KEYWORD for one in parameters.values()):
            continue
        names.append(name)
        if "placement" in parameters:
            names.append(f"{name}[placement={placements[len(names) % len(placements)]}]")
    return names


def faults(spec: str, seed: int) -> list[str]:
    """Describe the errors when the policy plays the case."""
    case = random_case(seed)
    try:
        return case.faults(lambda: POLICIES.create(spec, seed=seed))
    except DagsimError as error:
        return [f"{type(error).__name__}: {error}"]
    except Exception as error:
        return [f"traceback {type(error).__name__}: {error}"]


def stress(cases: int, first: int, policies: list[str]) -> Iterator[tuple[str, int, list[str]]]:
    for place in range(cases):
        spec, seed = policies[place % len(policies)], first + place
        yield spec, seed, faults(spec, seed)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    played: Counter[str] = Counter()
    violations = []
    for spec, seed, messages in stress(options.cases, options.first, options.policy or specs()):
        played[spec] += 1
        violations += [{"policy": spec, "case": seed, "what": what} for what in messages[:3]]
        if messages:
            say(f"{spec} on case {seed}: {messages[0]}")
    say(f"{len(played)} policies, {options.cases} cases, {len(violations)} violations")
    return {"policies": len(played), "cases": options.cases, "violations": violations}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--cases", type=int, default=3000, help="cases in all (default 3000)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="seed of the first case")
    parser.add_argument("--policy", action="append", help="play only these; may be given more than once")
    return command.run(parser, _work, holds=lambda figures: not figures["violations"])


if __name__ == "__main__":
    raise SystemExit(main())
