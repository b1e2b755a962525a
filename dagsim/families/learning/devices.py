"""Devices on which networks learn. Episodes always run on the CPU, with a copy of the network
there. A decision needs one small forward pass, and on a GPU it would take longer to start this pass
than to compute it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dagsim.errors import ConfigError

CPU = torch.device("cpu")
DEVICES = ("cpu", "cuda", "mps", "auto")

Batch = TypeVar("Batch")
Net = TypeVar("Net", bound=nn.Module)


def device_named(name: str) -> torch.device:
    """Return the device with a name from ``DEVICES``. The name ``auto`` stands for a GPU if there
    is one, and otherwise for the CPU.

    Raises:
        ConfigError: The name is unknown, or this machine has no such device.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, there in present.items() if there)
    if name not in present:
        raise ConfigError(f"--device: expected one of {', '.join(DEVICES)}, got {name!r}")
    if not present[name]:
        raise ConfigError(f"--device {name}: torch finds no such device on this machine; use cpu or auto")
    return torch.device(name)


def device_of(net: nn.Module) -> torch.device:
    """Return the device of a network's weights, or the CPU if the network has no weights."""
    return next((weight.device for weight in net.parameters()), CPU)


def on_device(batch: Batch, device: torch.device) -> Batch:
    """Return a tensor, or tuples of tensors, on a device. On the CPU, this is the
    same object."""
    if device.type == "cpu":
        return batch
    value: Any = batch
    if isinstance(value, Tensor):
        value = value.to(device)
    elif isinstance(value, tuple):
        parts = [on_device(part, device) for part in value]
        value = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value  # type: ignore[no-any-return]


def on_cpu(net: Net) -> Net:
    """Return the network itself if its weights are on the CPU. Otherwise, return a copy of the
    network on the CPU."""
    return net if device_of(net).type == "cpu" else deepcopy(net).cpu()
