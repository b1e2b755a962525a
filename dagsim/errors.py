"""Every error dagsim raises on purpose.

DagsimError
├── InputError (ValueError)         something the user wrote is wrong: exit code 2, no traceback
│   ├── ModelError                  a GPU type, node, task, graph or job that cannot be
│   │   └── GraphError              a cycle, a dangling or doubled edge
│   ├── ConfigError                 YAML or --set: file, line, key, what is allowed
│   ├── TraceError                  a trace file: file:line and what is wrong with it
│   ├── FetchError                  a published trace that cannot be downloaded, or is not what was published
│   ├── WorkloadError               a synthetic workload that cannot be made
│   ├── UnknownName                 no policy, network, reader ... of that name
│   ├── PluginError                 another package's or a user's own code that cannot be imported
│   ├── CodeNotAllowed              code that a file names, where files are data
│   └── RunFolderError              a run folder or checkpoint that is missing, damaged or another's
└── SimulationError
    ├── IllegalDecision             a policy decided what cannot be: task, time, reason
    ├── PolicyFailed                a policy's own code raised something else
    └── Stalled                     the policy waits and nothing is left to wait for
"""

from __future__ import annotations

__all__ = [
    "CodeNotAllowed",
    "ConfigError",
    "DagsimError",
    "FetchError",
    "GraphError",
    "IllegalDecision",
    "InputError",
    "ModelError",
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
    """The root of everything dagsim raises on purpose."""


class InputError(DagsimError, ValueError):
    """Something the user wrote is wrong; the message says what, where and what is allowed."""


class ModelError(InputError):
    """A GPU type, node, cluster, task or job that cannot be."""


class GraphError(ModelError):
    """Tasks and edges that are no DAG; the message names the tasks."""


class ConfigError(InputError):
    """A configuration that does not hold; one line per fault, each with file, line and key."""


class TraceError(InputError):
    """A trace file that cannot be read; the message starts with ``file:line``."""


class FetchError(InputError):
    """A published trace that cannot be downloaded, or is not what was published."""


class WorkloadError(InputError):
    """A synthetic workload that cannot be made as asked."""


class UnknownName(InputError):
    """No such policy, network, reader ...; the message suggests the nearest name."""


class PluginError(InputError):
    """Another package's or a user's own code that cannot be imported; the message names it and the exception."""


class CodeNotAllowed(InputError):
    """Code outside dagsim that a file names, where a file is only data; see docs/security.md."""


class RunFolderError(InputError):
    """A run folder or checkpoint that is missing, damaged, or of another experiment."""


class SimulationError(DagsimError):
    """A simulation that went wrong while it ran."""

    def blame(self, policy: object) -> None:
        """Put the policy in front of the message: its ``name`` if it has one, else its class."""
        name = getattr(policy, "name", None) or type(policy).__name__
        self.args = (f"policy {name}: {self}",)


class IllegalDecision(SimulationError):
    """A policy decided what cannot be done; the message names task, time and reason."""


class PolicyFailed(SimulationError):
    """A policy's own code raised something; the message names the policy, the exception and the line."""


class Stalled(SimulationError):
    """Tasks are left, the policy waits, and nothing is pending that could change that."""
