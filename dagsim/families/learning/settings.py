"""Settings that all algorithms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dagsim.errors import ConfigError
from dagsim.own_code import attribute


class AlgorithmSettings(Protocol):
    """An algorithm in a configuration: a dataclass with its settings."""

    @property
    def kind(self) -> str:
        """The algorithm's name in a configuration."""

    def build(self, context: Any) -> Any:
        """Build the algorithm's ``Learner`` from a ``LearnerContext``."""


@dataclass(frozen=True, slots=True)
class CheckedSettings:
    """Settings that check their own values. Error messages begin with ``kind``. If there is none,
    they begin with ``section``.
    """

    section: ClassVar[str] = ""

    __pydantic_config__ = {"extra": "forbid"}

    def _positive(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) > 0:
                raise self._wrong(f"{name} must be positive", name)

    def _fraction(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) <= 1:
                raise self._wrong(f"{name} must be between 0 and 1", name)

    def _at_least(self, least: float, name: str) -> None:
        if not getattr(self, name) >= least:
            raise self._wrong(f"{name} must be {least} or more", name)

    def _time_constants(self, name: str) -> None:
        if not min(getattr(self, name)) > 0:
            raise self._wrong(f"{name} must be positive", name)

    def _wrong(self, rule: str, name: str) -> ConfigError:
        return ConfigError(f"{getattr(self, 'kind', self.section)}: {rule}, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Algorithm(CheckedSettings):
    """The settings of an algorithm that comes with dagsim. They contain only the name of the
    learner, so torch is loaded only when a learner is built.
    """

    learner: ClassVar[str]

    def build(self, context: Any) -> Any:
        """Build the learner from a ``LearnerContext``."""
        return attribute(self.learner)(context)
