"""Files with tensors and plain values, which contain their own digest."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch

from dagsim.errors import RunFolderError
from dagsim.files import replaced
from dagsim.spelling import nearest_file


def write_plain(path: Path, plain: Mapping[str, Any]) -> None:
    """Write tensors and plain values together with their digest. The file is written atomically."""
    content = {name: value for name, value in plain.items() if name != "digest"}
    # Write to memory first, because torch's own file writer reports a full disk only as a
    # RuntimeError.
    buffer = BytesIO()
    torch.save({**content, "digest": _digest(content)}, buffer)
    with replaced(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def read_plain(path: Path) -> dict[str, Any]:
    """Read a file with tensors and plain values.

    Raises:
        RunFolderError: The file is missing or does not match its digest.
    """
    try:
        plain = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise RunFolderError(f"{path}: no such file{nearest_file(path)}") from None
    except Exception:  # unpickling a damaged file can raise any exception, with a message that does not help users
        why = "the checkpoint is damaged" if is_zipfile(path) else "not a checkpoint"
        raise RunFolderError(f"{path}: {why}; dagsim train writes checkpoints, such as RUN/best.pt") from None
    if not isinstance(plain, dict):
        raise RunFolderError(f"{path}: not a checkpoint from dagsim")
    digest = plain.pop("digest", None)
    if digest is None:
        raise RunFolderError(f"{path}: not a checkpoint of this version of dagsim (it has no digest)")
    if digest != _digest(plain):
        raise RunFolderError(f"{path}: damaged, because the content does not match the digest")
    return plain


def _digest(plain: Mapping[str, Any]) -> str:
    total = sha256()
    _feed(total, plain)
    return total.hexdigest()


def _feed(total: Any, value: Any) -> None:
    """Add a value, and everything that it contains, to the digest ``total``."""
    match value:
        case torch.Tensor():
            total.update(f"{value.dtype}{list(value.shape)}".encode())
            if value.numel():
                total.update(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        case Mapping():
            total.update(f"{len(value)}{{".encode())
            for key, item in value.items():
                total.update(repr(key).encode())
                _feed(total, item)
        case list() | tuple():
            total.update(f"{len(value)}[".encode())
            for item in value:
                _feed(total, item)
        case _:
            total.update(repr(value).encode())
