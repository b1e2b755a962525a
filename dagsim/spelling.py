"""Suggest similar names in messages about unknown ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path

from dagsim.errors import UnknownName
from dagsim.renamed import new_name


def nearest(name: str, names: Iterable[str], then: str = "") -> str:
    """Suggest the most similar name, as in ``"; did you mean 'heft'?"``. The result is empty if no
    name is similar. Otherwise, ``then`` is the rest of the message, which is appended with the
    right punctuation.

    For an old name, suggest the name that has replaced it. Case is ignored, and a name that starts
    with ``name`` counts as similar.
    """
    near = _nearest(name, list(names))
    return near + (" " if near.endswith("?") else "; ") + then if then else near


def _nearest(name: str, names: list[str]) -> str:
    if (new := new_name(name, names)) is not None:
        return f"; it is now called {new!r}"
    folded, by_folded = name.casefold(), {known.casefold(): known for known in reversed(names)}
    # Names that share a few letters in order are not similar if more than half of the letters differ.
    close = [known for known in get_close_matches(folded, by_folded, n=3) if _edits(folded, known) <= len(name) / 2]
    close += [known for known in by_folded if _edits(folded, known) <= _FEW_EDITS * len(known)] if len(name) < 5 else []
    close = sorted(close, key=lambda known: _edits(folded, known))
    close = close or [longer for longer in reversed(by_folded) if len(name) > 2 and longer.startswith(folded)]
    return f"; did you mean {by_folded[close[0]]!r}?" if close else ""


_FEW_EDITS = 0.34
"""Maximum edit distance at which a known name is suggested for a typed name of fewer than five
letters, as a fraction of the known name's length."""


def _edits(typed: str, name: str) -> float:
    """Return the edit distance between two names. Swapping two letters or mistyping a digit counts
    as half an edit, because a user who types a wrong digit usually has the rest of the name right.
    """
    older: list[float] = []
    last: list[float] = []
    row: list[float] = [float(place) for place in range(len(name) + 1)]
    for i, letter in enumerate(typed):
        older, last, row = last, row, [i + 1.0]
        for j, other in enumerate(name):
            changed = 0.0 if letter == other else 0.5 if letter.isdigit() and other.isdigit() else 1.0
            least = min(last[j] + changed, last[j + 1] + 1, row[j] + 1)
            if i and j and letter == name[j - 1] and typed[i - 1] == other:
                least = min(least, older[j - 1] + 0.5)
            row.append(least)
    return row[-1]


def nearest_file(path: Path, ends: str | tuple[str, ...] = "") -> str:
    """Suggest the file or folder whose name is most similar to that of a missing one in the same
    folder, in the words of ``nearest``. With ``ends`` (file extensions), only names with one of
    these extensions are considered, and the extensions are not compared.
    """
    try:
        beside = sorted(file.name for file in islice(path.parent.iterdir(), _MOST_FILES) if file.name.endswith(ends))
    except (OSError, ValueError):
        return ""
    by_name = {Path(name).stem if ends else name: name for name in reversed(beside)}
    near = re.search(r"'(.*)'", nearest(path.stem if ends else path.name, by_name))
    return f"; did you mean {str(path.parent / by_name[near[1]])!r}?" if near else ""


_MOST_FILES = 1000
"""Maximum number of files in which ``nearest_file`` looks for a similar name."""

_MOST_NAMED = 16
"""Maximum number of names that a message lists."""


def check_arguments(call: str, given: Iterable[str], *allowed: str) -> None:
    """Check the names of keyword arguments that are passed on.

    Raises:
        UnknownName: ``call`` has no such argument.
    """
    for name in given:
        if name not in allowed:
            raise UnknownName(f"{call}: no argument {name!r}{choices(name, allowed)}")


def call_hint(value: object) -> str:
    """Suggest to make an object if ``value`` is the class itself."""
    return f"; make one: {value.__name__}()" if isinstance(value, type) else ""


def _by_words(name: str, names: list[str]) -> str:
    """If ``name`` consists of several words and each of them is the beginning of a known name,
    suggest these known names.
    """
    begun = [[known for known in names if known.casefold().startswith(word)] for word in name.casefold().split("_")]
    if len(begun) < 2 or not all(begun) or any(_edits(name.casefold(), known.casefold()) <= 2 for known in names):
        return ""
    *first, last = dict.fromkeys(chain.from_iterable(begun))
    return f"; did you mean {', '.join(map(repr, first))} or {last!r}?" if 1 <= len(first) <= 2 else ""


def choices(name: str, names: Iterable[str], *, both: bool = False) -> str:
    """Return a hint for a message about an unknown name: the most similar name or, if none is
    similar, all names. If there are too many names to list, the hint gives up to three names that
    are slightly similar. With ``both``, the most similar name is followed by all names if there are
    few.
    """
    names = list(names)
    near = _by_words(name, names) or nearest(name, names)
    if len(names) <= _MOST_NAMED and (both or not near):
        then = f"allowed: {', '.join(names)}" if names else ""
        return f"{near}{' ' if near.endswith('?') else '; '}{then}" if then else near
    if near:
        return near
    folded = {known.casefold(): known for known in reversed(names)}
    far = [folded[one] for one in get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
    return f"; similar names: {', '.join(far)}" if far else f"; none of the {len(names)} names is similar"
