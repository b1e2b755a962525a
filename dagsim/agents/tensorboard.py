"""TensorBoard events, if it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["writer"]


def writer(folder: Path) -> Any:
    """Open a writer of events into ``folder``; ``None`` if TensorBoard is not installed (``pip
    install -e ".[tb]"``).
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
