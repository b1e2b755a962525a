"""Names used at sites: GPU types and host lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from sys import intern

from dagsim.errors import ConfigError
from dagsim.model.gpu import GPU_TYPES, canonical

_PATTERNS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"gb200", "GB200"),
        (r"gh200", "GH200"),
        (r"b300", "B300"),
        (r"b200", "B200"),
        (r"h200", "H200"),
        (r"h100", "H100"),
        (r"a100.*80", "A100-80"),
        (r"a100", "A100-40"),
        (r"v100.*32", "V100-32"),
        (r"v100", "V100-16"),
        (r"p100", "P100"),
        (r"k80", "K80"),
        (r"\bt4\b", "T4"),
        (r"\ba10g?\b", "A10"),
        (r"\ba30\b", "A30"),
        (r"\ba40\b", "A40"),
        (r"\bl40s\b", "L40S"),
        (r"\bl4\b", "L4"),
        (r"mi100", "MI100"),
        (r"mi250", "MI250X-GCD"),
        (r"mi300x", "MI300X"),
        (r"mi325x", "MI325X"),
        (r"2080.?ti", "RTX-2080Ti"),
        (r"rtx.?4090", "RTX-4090"),
        (r"rtx.?pro.?6000", "RTX-PRO-6000"),
        (r"tpu.?v5.?(e|lite)", "TPU-v5e"),
        (r"tpu.?v5p", "TPU-v5p"),
        (r"tpu.?v6e", "TPU-v6e"),
    )
)


_SHORT = 500  # in characters; longer names are assumed to be damaged


def site_gpu(name: str, named: Mapping[str, str] | None = None) -> str:
    """Return the catalogue's name for the GPU type that a site calls ``name``, or ``name`` itself if
    the catalogue has none.

    ``named`` maps the site's names, in lower case, to names in the catalogue, and takes precedence.
    A name without a memory size, such as ``a100``, means the variant with less memory.
    """
    if named and name.strip().lower() in named:
        return named[name.strip().lower()]
    return _known(name) if len(name) < _SHORT else name


@lru_cache(maxsize=1 << 12)
def _known(site_name: str) -> str:
    if canonical(site_name) in GPU_TYPES:
        return canonical(site_name)
    words = site_name.strip().lower().replace("_", " ")
    return next((name for pattern, name in _PATTERNS if name in GPU_TYPES and pattern.search(words)), site_name)


def named_gpus(text: str | None, option: str = "gpu_names") -> dict[str, str]:
    """Parse ``a100=A100-80,gpu7=T4`` as a mapping from the site's names, in lower case.

    Raises:
        ConfigError: A part is not a pair of names.
    """
    named = {}
    for part in (text or "").split(",") if text else ():
        site, equals, name = (word.strip() for word in part.partition("="))
        if not (site and equals and name):
            raise ConfigError(f"{option} must be pairs like a100=A100-80, separated by commas, got {part!r}")
        named[site.lower()] = canonical(name)
    return named


_MOST = 1 << 17
_MOST_OF_A_JOB = 1 << 14
_SHORT_LIST = 200  # in characters; longer lists are not cached
_NUMBERED = re.compile(r"(.*?)(\d{1,18})(\D*)", re.DOTALL)


def hosts(text: str, most: int = _MOST) -> tuple[str, ...]:
    """Expand a host list such as ``n[01-03]`` to at most ``most`` names. A name may have several
    brackets, numbers with leading zeros, and a suffix.

    Raises:
        ValueError: A bracket is not closed, or does not contain a list of numbers and ranges.
    """
    return tuple(islice((name for part in _parts(text) for name in _expanded(part)), most))


@lru_cache(maxsize=1 << 12)
def _short_hosts(text: str) -> tuple[str, ...]:
    return tuple([intern(name) for name in hosts(text, _MOST_OF_A_JOB)])


def listed_hosts(text: str) -> tuple[str, ...]:
    """Return the nodes of a job. Jobs with the same short list share one tuple.

    Raises:
        ValueError: The list cannot be read.
    """
    return _short_hosts(text) if len(text) < _SHORT_LIST else hosts(text, _MOST_OF_A_JOB)


def readable_hosts(text: str) -> tuple[str, ...]:
    """Return the nodes of a job, or an empty tuple if the list cannot be read."""
    try:
        return listed_hosts(text)
    except ValueError:
        return ()


def folded(names: Iterable[str]) -> str:
    """Write names as a host list, in which consecutive numbers of equal width form a range."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    plain: list[str] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None or any(sign in name for sign in "[],"):
            plain.append(name)
        else:
            width = len(match[2]) if match[2].startswith("0") or len(match[2]) > 1 else 1
            groups.setdefault((match[1], match[3], width), []).append(int(match[2]))
    parts = plain
    for (prefix, suffix, width), numbers in groups.items():
        ranges = list(_ranges(sorted(set(numbers)), width))
        alone = len(ranges) == 1 and "-" not in ranges[0]
        parts.append(f"{prefix}{ranges[0] if alone else '[' + ','.join(ranges) + ']'}{suffix}")
    return ",".join(parts)


def _parts(text: str) -> Iterator[str]:
    """Split a text at the commas outside brackets."""
    depth, start = 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match: {text[:80]!r}")
        if char == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"a bracket is not closed: {text[:80]!r}")
    yield text[start:]


def _expanded(part: str) -> Iterator[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        if before:
            yield before
        return
    inside, _, after = rest.partition("]")
    for number in _numbers(inside):
        for name in _expanded(after) if after else ("",):
            yield f"{before}{number}{name}"


def _numbers(inside: str) -> Iterator[str]:
    for part in inside.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isascii() and first.isdecimal() and last.isascii() and last.isdecimal() and len(last) < 19):
            raise ValueError(f"not a range of numbers: {part[:80]!r}")
        if int(first) > int(last):
            raise ValueError(f"a range whose end is before its start: {part[:80]!r}")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"


def _ranges(numbers: list[int], width: int) -> Iterator[str]:
    start = 0
    for at in range(len(numbers)):
        if at + 1 == len(numbers) or numbers[at + 1] != numbers[at] + 1:
            first, last = (f"{numbers[end]:0{width}d}" for end in (start, at))
            yield first if start == at else f"{first}-{last}"
            start = at + 1
