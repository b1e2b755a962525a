"""All errors that dagsim raises on purpose.

DagsimError
├── InputError (ValueError)         something the user wrote is wrong: exit code 2, no traceback
│   ├── ModelError                  an impossible GPU type, node, task, graph or job
│   │   ├── GraphError              a cycle, or a dangling or duplicate edge
│   │   └── NestedTooDeeply         a constraint with too many nested brackets
│   ├── ConfigError                 YAML or --set: file, line, key, what is allowed
│   ├── TraceError                  a trace file: file:line and what is wrong with it
│   │   └── NotRecognised           a file whose format no reader recognises
│   ├── FetchError                  a published trace that cannot be downloaded, or has changed
│   ├── WorkloadError               a synthetic workload that cannot be generated
│   ├── UnknownName                 no policy, network, reader or other object with that name
│   ├── PluginError                 code from another package or a user that cannot be imported
│   ├── CodeNotAllowed              code named in a file that may only contain data
│   └── RunFolderError              a run folder or checkpoint that is missing, damaged or foreign
└── SimulationError
    ├── IllegalDecision             an impossible decision: task, time, reason
    ├── PolicyFailed                the policy's code raised another exception
    └── Stalled                     the policy waits although nothing will happen, or never stops deciding
"""

from __future__ import annotations

from typing import Self

__all__ = [
    "CodeNotAllowed",
    "ConfigError",
    "DagsimError",
    "FetchError",
    "GraphError",
    "IllegalDecision",
    "InputError",
    "ModelError",
    "NestedTooDeeply",
    "NotRecognised",
    "PluginError",
    "PolicyFailed",
    "RunFolderError",
    "SimulationError",
    "Stalled",
    "TraceError",
    "UnknownName",
    "WorkloadError",
]


class DagsimError(Exception):
    """The base class of all errors that dagsim raises on purpose."""


class InputError(DagsimError, ValueError):
    """The user's input is wrong. The message states what is wrong, where, and what is allowed."""


class ModelError(InputError):
    """A GPU type, node, cluster, task or job cannot exist as described."""

    path: tuple[str | int, ...] = ()
    """The path of keys from the checked part to the faulty value."""

    def below(self, *keys: str | int) -> Self:
        """Extend ``path`` so that it begins at an enclosing part, and return this error. ``keys``
        is the path from the enclosing part to the part that has been checked so far.
        """
        self.path = (*keys, *self.path)
        return self


class GraphError(ModelError):
    """Tasks and edges do not form a DAG. The message names the tasks."""


class NestedTooDeeply(ModelError):
    """A constraint on nodes contains brackets that are nested too deeply."""


class ConfigError(InputError):
    """A configuration is invalid. Each fault is a separate argument of the error and a separate
    line of its text, with file, line and key.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class TraceError(InputError):
    """A trace file cannot be read. The message starts with ``file:line``."""


class NotRecognised(TraceError):
    """No reader recognises the format of a file. The message lists the formats that the file
    resembles.
    """


class FetchError(InputError):
    """A published trace cannot be downloaded, or the downloaded content differs from the published
    one.
    """


class WorkloadError(InputError):
    """A synthetic workload cannot be generated as requested."""


class UnknownName(InputError):
    """No policy, network, reader or other object has this name. The message suggests the most
    similar name.
    """


class PluginError(InputError):
    """Code from a user or another package cannot be imported. The message names the code and the
    exception.
    """


class CodeNotAllowed(InputError):
    """A file that may only contain data refers to code outside dagsim (see docs/security.md)."""


class RunFolderError(InputError):
    """A run folder or checkpoint is missing, damaged, or from another experiment."""


class SimulationError(DagsimError):
    """A simulation failed."""

    def blame(self, policy: object) -> None:
        """Add the name of the policy at the beginning of the message. The name is the policy's
        attribute ``name`` or, without one, the name of its class.
        """
        name = getattr(policy, "name", None) or type(policy).__name__
        self.args = (f"policy {name!r}: {self}",)


class IllegalDecision(SimulationError):
    """A policy made an impossible decision. The message names the task, the time and the reason."""


class PolicyFailed(SimulationError):
    """A policy's code raised an exception. The message names the policy, the exception and the
    line.
    """


class Stalled(SimulationError):
    """The policy waits although tasks are left, and there is no future event that could change
    anything. Also raised if the policy would be called an unlimited or absurdly large number of
    times before anything changes.
    """


def require(holds: object, rule: str, value: object, error: type[DagsimError] = ConfigError) -> None:
    """Raise an error unless ``holds`` is true. ``rule`` states the condition in words, such as
    ``"width must be 1 or more"``.

    Raises:
        DagsimError: The value does not satisfy the rule. The exception has the type ``error`` and
            states the rule and the value.
    """
    if not holds:
        raise error(f"{rule}, got {value!r}")


def one_line(error: Exception) -> str:
    """Return the text of an error as one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]
