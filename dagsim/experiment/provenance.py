"""Find the files that determine a run: the user's own code, checkpoints, traces, and other files
that the configuration names. Each is recorded with its SHA-256.

The manifest of a run folder records these files, so that changes are detected when the run is
repeated.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from os.path import expandvars
from pathlib import Path
from typing import Any

import dagsim
from dagsim import services
from dagsim.config.dumping import config_hash, plain
from dagsim.config.schema import Config
from dagsim.errors import ConfigError, PluginError
from dagsim.experiment.scenario import scenario_of
from dagsim.family import families
from dagsim.files import file_hash
from dagsim.own_code import is_own, own_names, source_file
from dagsim.specs import Spec
from dagsim.spelling import nearest_file
from dagsim.systems.policy_spec import PolicyKind, PolicySpec, named_files
from dagsim.systems.seam import Scenario

_CANNOT_MATTER = ("cli", "report", "testing", "configs", "workloads", "ARCHITECTURE.md", "py.typed")
"""Parts of the package that cannot affect a cell's results. The digest covers everything else,
including data files, so a new file is covered by default. ``configs`` and ``workloads`` exist only
in the wheel, and the hash of a configuration covers what the configuration takes from them. A
family that cannot affect results declares this itself (``shows_only``).
"""
_STATING = ("__init__.py", "family.py")
"""The files in a family that every process reads."""
KINDS = {"code": "the source of", "checkpoints": "the checkpoint of", "traces": "the trace", "inputs": "the file"}
"""Kinds of files that a manifest lists, each with the words that come before a name."""
_PACKAGE = Path(__file__).parents[1]

Sources = dict[str, dict[str, Any]]


def provenance(config: Config, policies: Iterable[str]) -> dict[str, Sources]:
    """Return the files that ``policies`` and ``config`` use. Under each of ``code``, ``checkpoints``,
    ``traces`` and ``inputs``, names are mapped to ``{"file": path, "sha256": hex digits}``.

    Raises:
        ConfigError: A file is missing.
    """
    files: dict[str, Sources] = {kind: {} for kind in KINDS}
    used = [source for policy in policies for source in sources_of(config, policy)]
    for kind, name, path in (*used, *files_in(plain(config))):
        files[kind][name] = {"file": str(path.absolute()), "sha256": digest(path)}
    for name, path in metric_files(config).items():
        files["code"][name] = {"file": str(path.absolute()), "sha256": digest(path)}
    trace = config.whole_system.trace_path
    if trace is not None:
        files["inputs"] = {name: fact for name, fact in files["inputs"].items() if Path(expandvars(name)) != trace}
        files["traces"][str(trace)] = {"file": str(trace), "sha256": digest(trace)}
    return files


def sources_of(config: Config, policy: str) -> Iterator[tuple[str, str, Path]]:
    """Yield the files that a policy uses, each with its kind (``code`` or ``checkpoints``) and the
    name under which it is recorded. A file may be the checkpoint of an agent, the user's own
    module, a file named in the command that starts an external program, or the configuration of a
    scheduler.
    """
    spec = PolicySpec.parse(policy)
    if spec.kind is not PolicyKind.PROGRAM:
        for own in own_names(str(spec.call)):
            for path in _source(own):
                yield "code", own, path
        scenario = scenario_of(config)
        if spec.is_agent(scenario):
            checkpoint = spec.params.get("checkpoint") or services.shipped_agent(spec.name, scenario)
            yield "checkpoints", policy, Path(str(checkpoint))
            return
        if (checkpoints := _checkpoints(scenario, spec.name)) is not None:
            for path in checkpoints(**spec.params):
                yield "checkpoints", policy, path
            return
    for path in spec.files():
        yield "code", f"{spec.name}:{path}", path


def _checkpoints(scenario: Scenario, name: str) -> Callable[..., Iterable[Path]] | None:
    """Return the method that lists a policy's checkpoints, or None if it has no such method. Also
    return None if the policy cannot be imported: its own runs report this error, and the other
    policies still run.
    """
    try:
        return getattr(scenario.policies.get(name), "checkpoints", None) if name in scenario.policies else None
    except PluginError:
        return None


def metric_files(config: Config) -> dict[str, Path]:
    """Return the files that the metrics of a configuration read, under the keys ``metric:path``."""
    specs = [Spec.parse(spec) for spec in config.metrics]
    return {f"{name}:{path}": path for name, params in specs for path in named_files(params.values())}


def changes(recorded: Mapping[str, Any], now: Mapping[str, Any] | None = None) -> list[str]:
    """Compare the manifest ``recorded`` with ``now`` (a result of ``provenance``) or, by default,
    with the files on disk. Return one sentence for each file that differs, and one if the
    simulation code has changed. Names that are not in ``now`` are not compared.
    """
    sentences = [changed] if (changed := _code_changed(recorded)) else []
    for kind, noun in KINDS.items():
        for name, fact in (recorded.get(kind) or {}).items():
            path = Path(fact["file"])
            if now is not None:
                if name not in now[kind]:
                    continue
                path, sha = Path(now[kind][name]["file"]), now[kind][name]["sha256"]
            else:
                sha = digest(path) if path.exists() else None
            if sha is None:
                sentences.append(f"{noun} {name} is gone: {path}")
            elif sha != fact["sha256"]:
                sentences.append(
                    f"{noun} {name} has changed: {path} (SHA-256 {fact['sha256'][:12]}..., now {sha[:12]}...)"
                )
    return sentences


@cache
def code_digest() -> str:
    """Return the SHA-256 of the simulation code and its data files. It is recorded with every run,
    because another version of the code may give different results.
    """
    total, root = sha256(dagsim.__version__.encode()), Path(dagsim.__file__).parent
    for path in digested_files(root):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def digested_files(package: Path) -> list[Path]:
    """Return the sorted files of the package that determine what a cell computes."""
    home, digested = package / "families", list[Path]()
    shown = {home / name for name, family in families().items() if family.shows_only}
    for folder, inside, names in os.walk(package):
        at = Path(folder)
        left_out = ("__pycache__", *(_CANNOT_MATTER if at == package else ()))
        inside[:] = [name for name in inside if name not in left_out]
        only = _STATING if shown & {at, *at.parents} else names
        digested += [at / name for name in names if name not in left_out and name in only]
    return sorted(path for path in digested if path.is_file() and path != home / "names.json")


def _code_changed(recorded: Mapping[str, Any]) -> str:
    """State how the simulation code differs from the code recorded in a manifest. The result is
    empty if both are the same."""
    code = recorded.get("code_sha256")
    if code == code_digest():
        return ""
    if code is None:
        return "it does not record the code of dagsim that made it"
    return f"the code of dagsim has changed (SHA-256 {code[:12]}..., now {code_digest()[:12]}...)"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file or folder. It is cached until the size or the modification time
    changes.

    Raises:
        ConfigError: The file or folder does not exist.
    """
    if not path.exists():
        raise ConfigError(f"{path}: no such file{nearest_file(path)}")
    facts = path.stat()
    return _digest(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _digest(path: Path, _time_ns: int, _size: int) -> str:
    return file_hash(path)


def _source(name: str) -> Iterator[Path]:
    """Yield the file of the module in ``module:attr``. Yield nothing for modules of dagsim and for
    modules without a file.
    """
    path = source_file(name)
    if path is not None and not path.absolute().is_relative_to(_PACKAGE):
        yield path


def files_in(value: Any) -> Iterator[tuple[str, str, Path]]:
    """Yield the files and folders that a configuration (as ``plain`` writes it) names outside the
    policy, each with its kind (``code`` or ``inputs``) and the name by which the configuration
    refers to it. The name of a user's own module (``module:attr``) may be a value, or a key such as
    those of ``reward``.
    """
    if isinstance(value, str):
        name = value.partition("[")[0].strip()
        if is_own(name) and own_names(name) == [name]:
            for own in own_names(value):
                for path in _source(own):
                    yield "code", own, path
        elif _LIKE_A_PATH.fullmatch(value) and os.path.exists(named := expandvars(value)):
            yield "inputs", value, Path(named)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            if key != "policy":
                yield from files_in(key)
                yield from files_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from files_in(part)


_LIKE_A_PATH = re.compile(r"(?=.*\w).*[./$].*")
"""Texts that can name a file or a folder. Others name policies, models and the like, even if a folder has the same
name."""


SCHEMA = 2
"""The version of the run folder's layout. Since version 2, a run folder records where the rows of
each run end, and which policies were to run.
"""

_PACKAGES = ("numpy", "pandas", "pydantic", "scipy", "simpy", "torch", "gymnasium")


def manifest(
    command: str, created: datetime, config: Config, seeds: tuple[int, ...], policies: Iterable[str]
) -> dict[str, Any]:
    """Return the manifest of a run, as plain values for JSON.

    Raises:
        ConfigError: A file that determines the run is missing.
    """
    files = provenance(config, policies)
    trace = next(iter(files["traces"].values()), None)
    return {
        "schema": SCHEMA,
        "command": command,
        "created": created.isoformat(timespec="seconds"),
        "seeds": list(seeds),
        "config_sha256": config_hash(config),
        "trace": None if trace is None else {"path": trace["file"], "sha256": trace["sha256"]},
        **files,
        "code_sha256": code_digest(),
        "git_commit": _commit(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        # The distribution is not called dagsim, so take its version from the package, not from
        # metadata.
        "versions": {"dagsim": dagsim.__version__} | {name: number for name in _PACKAGES if (number := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(checkout: Path) -> str | None:
    """Return the commit of the checkout, with ``-dirty`` if any file differs from it, or ``None``
    outside a checkout.
    """
    return _git(checkout, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or None


def code_commit(checkout: Path) -> str | None:
    """Return the commit, with ``-dirty`` only if the code differs from it, or None outside a
    checkout. Changes in ``results/`` are ignored, because scripts write their tables there.
    """
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "dagsim", "scripts", "configs")
    return commit and f"{commit}{'-dirty' if changed else ''}"


def _git(checkout: Path, *arguments: str) -> str | None:
    """Return the output of git, or ``None`` if git fails."""
    if not (checkout / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
