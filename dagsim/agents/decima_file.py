"""A trained Decima network as a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagsim.agents.decima_features import CONTEXT, JOB, OPTION, STAGE
from dagsim.agents.decima_net import DecimaNet
from dagsim.agents.decima_play import DecimaPolicy
from dagsim.agents.policy import read_plain, write_plain
from dagsim.errors import RunFolderError

__all__ = ["load_decima", "load_net", "save_net"]

_FORMAT = "dagsim-decima-1"


def save_net(net: DecimaNet, path: Path, about: Mapping[str, Any]) -> None:
    """Write the network, whole or not at all; ``about`` (plain values) says where it comes from."""
    plain = {
        "format": _FORMAT,
        "features": _features(),
        "hidden": net.hidden,
        "head": net.head,
        "action": net.action,
        "weights": net.state_dict(),
        "about": dict(about),
    }
    write_plain(path, plain)


def load_net(path: Path) -> tuple[DecimaNet, dict[str, Any]]:
    """The network that ``save_net`` wrote, and what it says about itself; nothing in the file is executed.

    Raises:
        RunFolderError: Missing, damaged, of another version of dagsim, or made for other observations.
    """
    plain = read_plain(path)
    if plain.get("format") != _FORMAT:
        raise RunFolderError(f"{path}: not a Decima network of this version of dagsim ({plain.get('format')!r})")
    if plain.get("features") != _features():
        raise RunFolderError(f"{path}: was trained on other observations than this version of dagsim makes")
    try:
        net = DecimaNet(plain["hidden"], plain["head"], plain.get("action", "executors"))
        net.load_state_dict(plain["weights"])
        return net.eval(), plain["about"]
    except (KeyError, TypeError, RuntimeError) as error:
        raise RunFolderError(f"{path}: its parts do not fit together ({str(error).splitlines()[0]})") from None


def load_decima(checkpoint: str | Path, sampled: bool = False) -> DecimaPolicy:
    """The network in a checkpoint file, as a policy of the Spark simulation.

    Raises:
        RunFolderError: As ``load_net``.
    """
    return DecimaPolicy(load_net(Path(checkpoint))[0], sampled=sampled)


def _features() -> list[str]:
    return [*STAGE, *JOB, *CONTEXT, *OPTION]
