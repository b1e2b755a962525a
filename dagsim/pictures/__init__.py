"""Pictures of a schedule at a given time, which show waiting, running and finished jobs."""

from dagsim.pictures.scene import Scene

__all__ = ["Scene"]
