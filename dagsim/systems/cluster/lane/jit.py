"""Compilation by numba where it is installed; the same functions as plain Python where it is not.

Two decorators for two kinds of functions. ``main`` is for those that Python calls, ``inner`` for those that they call:
these are always inlined, since handing the state from function to function costs more than what most of them do.
Neither may allocate. That is what ``_nrt=False`` promises, and what makes the lane fast: otherwise every function
counts references to every array of the state. With ``NUMBA_DISABLE_JIT=1`` numba itself leaves functions as they are.

What was compiled is kept below ``NUMBA_CACHE_DIR``, or the user's folder for caches, under a digest of all files of the
lane: numba itself notices only that the file of a function has changed, not those of the functions it calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

try:
    import numba
except ImportError:
    numba = None  # type: ignore[assignment]

__all__ = ["inner", "installed", "int64", "is_kept", "jitted", "main"]

int64: Callable[[Any], int] = np.int64  # type: ignore[assignment]
"""A number as the lane computes with it: handed on as 32 bits, it would have every function compiled twice."""

Function = TypeVar("Function", bound=Callable[..., Any])

_COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def installed() -> bool:
    """Say whether numba is there at all."""
    return numba is not None


def jitted() -> bool:
    """Say whether the lane's functions are compiled when they are called."""
    return numba is not None and not numba.config.DISABLE_JIT  # type: ignore[attr-defined]


def is_kept(name: str) -> bool:
    """Say whether a function of that name was compiled before, from the files as they are."""
    return jitted() and any(Path(_cache_folder()).rglob(f"*.{name}-*.nbc"))


def inner(function: Function) -> Function:
    """Compile a function that only other functions of the lane call."""
    return _compiled(function, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def main(function: Function) -> Function:
    """Compile a function that Python calls."""
    return _compiled(function, no_cfunc_wrapper=True)


def _compiled(function: Function, **options: Any) -> Function:
    if numba is None:
        return function
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, _cache_folder()
    try:
        return numba.njit(cache=True, **_COMMON, **options)(function)
    except RuntimeError:  # no folder that can be written to
        return numba.njit(**_COMMON, **options)(function)
    finally:
        config.CACHE_DIR = before


@cache
def _cache_folder() -> str:
    """Where functions compiled from exactly these files are kept."""
    digest = sha256(b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(os.environ.get("NUMBA_CACHE_DIR") or Path(caches) / "dagsim") / f"lane-{digest[:16]}")
