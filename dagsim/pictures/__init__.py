"""A schedule at one moment as a picture: waiting, running and finished jobs."""

from dagsim.pictures.scene import Scene

__all__ = ["Scene"]
