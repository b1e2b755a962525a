"""Functions that are compiled once with numba, and later loaded without numba.

Two decorators mark two kinds of functions. ``outer`` is for functions that Python calls with arrays
and named tuples of arrays. ``inner`` is for functions that outer functions call. They are inlined
if they are small, because passing the state from one function to another costs more than most
functions do. Functions of both kinds may not allocate memory. ``_nrt=False`` enforces this. It also
makes the functions fast, because otherwise each of them would count references to every array of
the state. Without numba, or with ``NUMBA_DISABLE_JIT=1``, they run as plain Python.

**The first call of an outer function** compiles it with everything that it calls (``pointers``),
and stores the object code. **Every later process loads the object code** with llvmlite alone, which
takes 0.1 CPU seconds. Importing numba, setting up its typing and reading its own cache would take
1.3 CPU seconds. A compiled function has one argument: the address of a table of words. The table
contains the address and the lengths of each array, in the order of the arguments (``words_of``).
The table is built again for each call, because arrays may have moved since the previous call (those
of a ``BoundCall`` cannot). Types and contiguity are checked at the same time. If the arguments have
other types, the function is compiled again for them, and unsupported arguments raise an error. This
ensures that no argument is ever read from a wrong address.

Object code is stored below ``NUMBA_CACHE_DIR`` or in the user's cache folder. The name of the
folder is a digest of everything on which the code depends: the files in this folder, the core
modules that they use, the files that families add (``compiled_sources``), the versions of Python
and numba, and the processor with its features.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from time import sleep
from typing import Any, TypeAlias, TypeVar

import numpy as np

from dagsim.family import family_entries
from dagsim.files import Lock, replaced
from dagsim.model import queues
from dagsim.systems.cluster.policies import formulas
from dagsim.systems.cluster.waits import stalled

int64: Callable[[Any], int] = np.int64  # type: ignore[assignment]
"""Converts a number to 64 bits, because a 32-bit argument would make numba compile every function
twice."""

Function = TypeVar("Function", bound=Callable[..., Any])
Record = TypeVar("Record", bound=type)

_INLINED_B = 500
"""Functions with fewer bytes of byte code are inlined. Inlining all functions takes 25% more
compile time and makes nothing faster; inlining none makes a task take 50% longer."""

COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""numba's options for all functions."""

INNER: list[tuple[Callable[..., Any], dict[str, Any]]] = []
"""Inner functions that have not been registered with numba yet (``pointers``), with their own
options."""
TUPLES: list[type] = []
"""Classes to pass by pointer, also not registered yet."""
AT_ADDRESS: list[tuple[Callable[[int], Any], Callable[[], Any]]] = []
"""Functions that turn an address into the tuple stored there, also not registered yet, each with an
example of the tuple."""


@cache
def installed() -> bool:
    """Return True if numba is installed. This does not import numba."""
    return find_spec("numba") is not None


def jitted() -> bool:
    """Return True if outer functions are compiled when they are called."""
    return installed() and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


def is_kept(name: str) -> bool:
    """Return True if an outer function with this name was compiled from these files for this
    processor, and can be loaded.
    """
    try:
        return jitted() and any(_read(path) is not None for path in folder().glob(f"{name}-*.o"))
    except OSError:  # in Python 3.11, ``glob`` raises an error if a parent folder is not readable
        return False


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process is compiling, and keep others from compiling while the block
    runs."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        lock = Lock(folder() / "lock")
        while not lock.claim():
            sleep(0.1)
    except OSError:  # the cache folder is not writable, so there is nothing to lock
        yield
        return
    try:
        yield
    finally:
        lock.release()


def by_pointer(cls: Record) -> Record:
    """Register a class of named tuples, which compiled functions then pass as one pointer."""
    TUPLES.append(cls)
    return cls


def at_address(example: Callable[[], Any]) -> tuple[Callable[[int], Any], dict[int, Any]]:
    """Return a function that turns the address of a table (``words_of``) into the named tuple that
    the table describes. The named tuple must have the type of ``example()``. Also return a
    dictionary.

    Plain Python cannot read such tables. There, the function looks the address up in the
    dictionary.
    """
    plain: dict[int, Any] = {}

    def at(address: int) -> Any:
        return plain[int(address)]

    AT_ADDRESS.append((at, example))
    return at, plain


def inner(function: Function) -> Function:
    """Mark a function that is only called by outer functions."""
    small = len(function.__code__.co_code) < _INLINED_B
    INNER.append((function, {"forceinline": small, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}))
    return function


ArgumentForm: TypeAlias = tuple[np.dtype, int]
"""The properties of an argument, or of its member, on which compiled code relies: its type, and the
number of axes of an array (-1 for a record)."""


class Outer:
    """A function that is called from Python. It is compiled once for each combination of types of
    its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.plain = function
        self._loaded: list[tuple[list[ArgumentForm], Callable[..., int]]] = []
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__

    def __call__(self, *args: Any) -> Any:
        """Call the function, compiled if numba is installed.

        Raises:
            TypeError: An argument is not an array, a record or a named tuple of these, or is
                not contiguous.
        """
        if not jitted():
            return self.plain(*args)
        forms: list[ArgumentForm] = []
        words: list[int] = []
        words_of(args, forms, words)
        return self.run(forms, words, args)

    def run(self, forms: list[ArgumentForm], words: list[int], args: tuple[Any, ...]) -> int:
        """Call the compiled function with arguments of these types, given as words."""
        native = next((code for known, code in self._loaded if known == forms), None) or self._load(forms, args)
        table, result, error = np.array(words, np.int64), ctypes.c_int64(), ctypes.c_void_p()
        if native(ctypes.byref(result), ctypes.byref(error), _address(table)):
            raise RuntimeError(f"the compiled function {self.__name__} failed")
        return result.value

    def _load(self, forms: list[ArgumentForm], args: tuple[Any, ...]) -> Callable[..., int]:
        """Load the object code for these arguments. If there is none yet, compile and store it
        first."""
        digest = sha256(repr([(dtype.descr, axes) for dtype, axes in forms]).encode()).hexdigest()[:16]
        path = folder() / f"{self.__name__}-{digest}.o"
        kept = _read(path)
        if kept is None:
            from dagsim.families.compiled.pointers import object_code

            kept = object_code(self.plain, args)
            with suppress(OSError):  # if the folder is not writable, nothing is cached
                path.parent.mkdir(parents=True, exist_ok=True)
                with replaced(path) as temporary:
                    temporary.write_bytes(b"\n".join((sha256(kept[1]).hexdigest().encode(), kept[0].encode(), kept[1])))
        native = _linked(*kept)
        self._loaded.append((forms, native))
        return native


class BoundCall:
    """An outer function whose last arguments are the same in every call. The addresses of their arrays
    are looked up once (``words``), which saves a third of the time of a short call.

    The arrays cannot move in the meantime, because this object holds references to them, and NumPy
    does not resize an array to which others refer.
    """

    def __init__(self, function: Outer, *kept: Any) -> None:
        self._function, self._kept = function, kept
        self._forms: list[ArgumentForm] = []
        self.words: list[int] = []
        words_of(kept, self._forms, self.words)

    def __call__(self, *args: Any) -> Any:
        """Call the function with these arguments, followed by those that are the same in every call."""
        if not jitted():
            return self._function.plain(*args, *self._kept)
        forms: list[ArgumentForm] = []
        words: list[int] = []
        words_of(args, forms, words)
        return self._function.run(forms + self._forms, words + self.words, (*args, *self._kept))


def outer(function: Callable[..., Any]) -> Outer:
    """Compile a function that Python calls with named tuples and arrays. It returns a whole number,
    a truth value or nothing."""
    return Outer(function)


# np.recarray looks up every attribute in Python code, which is slow. Use the descriptors of
# np.ndarray directly.
_flags, _dtype, _ndim, _shape = (vars(np.ndarray)[name].__get__ for name in ("flags", "dtype", "ndim", "shape"))


def words_of(value: Any, forms: list[ArgumentForm], words: list[int]) -> None:
    """Append the form of a value to ``forms``, and the words that describe it to ``words``. For an
    array, the words are its address and its lengths. For a record, the only word is its address.
    For a tuple, the forms and words of all its members are appended.

    Raises:
        TypeError: The value is none of these, or is not contiguous.
    """
    if isinstance(value, np.ndarray) and _flags(value).c_contiguous:
        forms.append((_dtype(value), _ndim(value)))
        words.append(_address(value))
        words += _shape(value)
    elif isinstance(value, tuple):
        for member in value:
            words_of(member, forms, words)
    elif isinstance(value, np.void):
        forms.append((value.dtype, -1))
        # Reading ``value.__array_interface__`` would take 50 times as long.
        words.append(np.frombuffer(value, np.uint8).ctypes.data)
    else:
        form = "strided array" if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"compiled functions accept only contiguous arrays and records, got a {form}")


def _address(array: Any) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    # from_buffer rejects read-only and empty arrays. ctypes.data accepts them, but takes eight
    # times as long.
    except (TypeError, ValueError):
        address: int = array.ctypes.data
        return address


def _read(path: Path) -> tuple[str, bytes] | None:
    """Return the symbol and the object code in a file. Return None if there is no such file, if it
    is damaged, or if it belongs to an untrusted user.
    """
    try:
        if not _is_trusted(path):
            return None
        digest, symbol, code = path.read_bytes().split(b"\n", 2)
    except (OSError, ValueError):
        return None
    return (symbol.decode(), code) if sha256(code).hexdigest().encode() == digest else None


def _is_trusted(path: Path) -> bool:
    """Return True if the code in a file belongs to this user, to root, or to the owner of dagsim's
    own code.

    Raises:
        OSError: There is no such file.
    """
    user = getattr(os, "geteuid", int)()
    return path.stat().st_uid in {user, 0, Path(__file__).stat().st_uid}


@cache
def _engine() -> Any:
    """Return the LLVM engine that links object code into this process."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.create_mcjit_compiler(
        binding.parse_assembly(""), binding.Target.from_default_triple().create_target_machine()
    )


def _linked(symbol: str, code: bytes) -> Callable[..., int]:
    """Return the function ``symbol`` from object code. The code stays in memory until the process
    ends."""
    from llvmlite import binding

    engine = _engine()
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return call(engine.get_function_address(symbol))


def dispatched(function: Function, *called: Callable[..., Any]) -> Function:
    """Compile a function with numba's own dispatcher, if numba is installed. Use this for functions
    that are called very often and whose arguments are numbers. ``called`` are the functions that it
    calls, directly or through others; they become parts of its code.
    """
    if not jitted():
        return function
    import numba

    for part in called:
        _inlined(part)
    njit: Any = numba.njit
    config: Any = numba.config
    dispatcher = njit(no_cfunc_wrapper=True, **COMMON)(function)
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder())
    try:
        dispatcher._cache = _numba_cache()(function)
    except RuntimeError:
        pass  # numba found no writable folder, so this function is not cached
    finally:
        config.CACHE_DIR = before
    return dispatcher


@cache
def _inlined(function: Callable[..., Any]) -> None:
    """Let compiled functions call this one. It is inlined."""
    from numba import extending

    register: Any = extending.register_jitable
    register(forceinline=True, **COMMON)(function)


@cache
def _numba_cache() -> Any:
    """Return a class for numba's cache of a function. The class treats damaged or unreadable files
    as if they were missing.
    """
    from numba.core import caching

    whole: Any = caching.FunctionCache

    class SteadyCache(whole):  # type: ignore[misc]
        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                if not all(map(_is_trusted, Path(self.cache_path).iterdir())):
                    return None
                return whole.load_overload(self, sig, target_context)
            except Exception:  # unpickling a damaged file can raise any exception
                with suppress(Exception):
                    self.flush()
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            with suppress(Exception):
                whole.save_overload(self, sig, data)

    return SteadyCache


def sources() -> list[Path]:
    """Return the files from which compiled functions are built."""
    added = [Path(str(files(home))) / str(entry.target) for home, entry in family_entries("compiled_sources")]
    places = [Path(__file__).parent, *(Path(str(module.__file__)) for module in (formulas, stalled, queues)), *added]
    return [path for place in places for path in (sorted(place.glob("*.py")) or [place])]


@cache
def folder() -> Path:
    """Return the folder for functions that were compiled from exactly these files, with this
    version of numba, for this kind of processor."""
    from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

    processor = f"{get_host_cpu_name()} {get_host_cpu_features().flatten()}"
    packages = " ".join(map(version, ("numba", "llvmlite", "numpy")))
    by = f"{packages} {sys.version} {processor}".encode()
    texts = [file.read_bytes() for file in sources()]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dagsim"
    return (
        Path(os.environ.get("NUMBA_CACHE_DIR") or caches)
        / f"compiled-{sha256(b''.join([by, *texts])).hexdigest()[:16]}"
    )
