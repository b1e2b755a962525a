"""Pictures of a schedule at one moment: waiting, running and finished jobs."""

from dagsim.pictures.scene import Scene

__all__ = ["Scene"]
