"""Compilation by numba if it is installed; otherwise the same functions run as plain Python.

Two decorators mark two kinds of functions. ``outer`` is for functions that Python calls. ``inner``
is for functions that those call: they are inlined if they are small, because passing the state
between functions costs more than most of them do. Neither kind may allocate. ``_nrt=False``
enforces that, and makes the lane fast: otherwise every function would count references to every
array of the state. With ``NUMBA_DISABLE_JIT=1`` numba leaves the functions as they are.

Compiled code is kept below ``NUMBA_CACHE_DIR``, or in the user's cache folder, under a digest of
all files of this folder, of those of the core from which its functions take others and constants,
and of those that families add (``compiled_sources``). Numba's own check is not enough: it notices
changes in the file of a function, but not in what that function uses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

import numpy as np

from dagsim.family import family_entries
from dagsim.files import Lock
from dagsim.systems.cluster import stalled
from dagsim.systems.cluster.policies import formulas

try:
    import numba
    from llvmlite.binding import get_host_cpu_name
except ImportError:
    numba = None  # type: ignore[assignment]

int64: Callable[[Any], int] = np.int64  # type: ignore[assignment]
"""A number as 64 bits: passed as 32 bits, it would make numba compile every function twice."""

Function = TypeVar("Function", bound=Callable[..., Any])
Record = TypeVar("Record", bound=type)

_INLINED_B = 500
"""Functions with fewer bytes of byte code are inlined. Inlining all functions takes 25 % more
compile time and makes nothing faster; inlining none makes a task take 50 % longer.
"""

_COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def installed() -> bool:
    """True if numba is installed."""
    return numba is not None


def jitted() -> bool:
    """True if the lane's functions are compiled when they are called."""
    return numba is not None and not numba.config.DISABLE_JIT  # type: ignore[attr-defined]


def is_kept(name: str) -> bool:
    """True if a function of that name is compiled from these files, for this processor."""
    return jitted() and any(folder().rglob(f"*.{name}-*.nbc"))


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process compiles, and keep others from compiling while the block runs."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        lock = Lock(folder() / "lock")
        while not lock.claim():
            sleep(0.1)
    except OSError:  # without a writable folder nothing can be kept
        yield
        return
    try:
        yield
    finally:
        lock.release()


def by_pointer(cls: Record) -> Record:
    """Make compiled functions pass named tuples of this class as one pointer."""
    if numba is not None:
        from dagsim.families.compiled.pointers import register

        register(cls)
    return cls


def at_address(example: Callable[[], Any]) -> tuple[Callable[[int], Any], dict[int, Any]]:
    """A function that turns the address of a table (``pointers``) into the named tuple that it
    describes, all of the type of ``example()``; and a dictionary.

    Plain Python cannot read tables, so the function looks addresses up in the dictionary there.
    """
    plain: dict[int, Any] = {}
    if not jitted():
        return lambda address: plain[int(address)], plain
    from dagsim.families.compiled import pointers

    return pointers.tuple_at(example), plain


def inner(function: Function) -> Function:
    """Compile a function that only other functions of the lane call."""
    small = len(function.__code__.co_code) < _INLINED_B
    return _compiled(function, forceinline=small, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def outer(function: Function) -> Function:
    """Compile a function that Python calls."""
    return _compiled(function, no_cfunc_wrapper=True)


def _compiled(function: Function, **options: Any) -> Function:
    if numba is None:
        return function
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder())
    try:
        return numba.njit(cache=True, **_COMMON, **options)(function)
    except RuntimeError:  # no writable folder
        return numba.njit(**_COMMON, **options)(function)
    finally:
        config.CACHE_DIR = before


def sources() -> list[Path]:
    """Return the files that compiled functions are made of."""
    added = [Path(str(files(home))) / str(entry.target) for home, entry in family_entries("compiled_sources")]
    places = [Path(__file__).parent, Path(formulas.__file__), Path(stalled.__file__), *added]
    return [path for place in places for path in (sorted(place.glob("*.py")) or [place])]


@cache
def folder() -> Path:
    """The folder of functions compiled from exactly these files. They are for this numba and this
    kind of processor."""
    by = f"{numba.__version__} {np.__version__} {sys.version} {get_host_cpu_name()}".encode()
    texts = [file.read_bytes() for file in sources()]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dagsim"
    return (
        Path(os.environ.get("NUMBA_CACHE_DIR") or caches)
        / f"compiled-{sha256(b''.join([by, *texts])).hexdigest()[:16]}"
    )
