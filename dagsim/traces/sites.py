"""Names of GPUs as sites write them, and the catalogue's names for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from dagsim.errors import ConfigError
from dagsim.model.gpu import GPU_TYPES, canonical

__all__ = ["named_gpus", "site_gpu"]

_PATTERNS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"gb200", "GB200"),
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
        (r"\bl40s\b", "L40S"),
        (r"\bl4\b", "L4"),
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


_SHORT = 500  # characters; a longer name is damage


def site_gpu(said: str, named: Mapping[str, str] | None = None) -> str:
    """The catalogue's name of the GPU type that a site calls ``said``; ``said`` itself where there is none.

    ``named`` goes first: a site's names, in lower case, and those to use. ``a100`` without a size is the smaller one.
    """
    if named and said.strip().lower() in named:
        return named[said.strip().lower()]
    return _known(said) if len(said) < _SHORT else said


@lru_cache(maxsize=1 << 12)
def _known(said: str) -> str:
    if canonical(said) in GPU_TYPES:
        return canonical(said)
    words = said.strip().lower().replace("_", " ")
    return next((name for pattern, name in _PATTERNS if name in GPU_TYPES and pattern.search(words)), said)


def named_gpus(text: str | None, option: str = "gpu_names") -> dict[str, str]:
    """``a100=A100-80,gpu7=T4`` as a mapping from the site's names, in lower case.

    Raises:
        ConfigError: A part is no pair of names.
    """
    named = {}
    for part in (text or "").split(",") if text else ():
        site, equals, name = (each.strip() for each in part.partition("="))
        if not (site and equals and name):
            raise ConfigError(f"{option} must be pairs like a100=A100-80, separated by commas, got {part!r}")
        named[site.lower()] = canonical(name)
    return named
