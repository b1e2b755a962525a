"""Draw pictures of a schedule at a given time, with its waiting and running jobs."""

from dagsim.pictures.scene import Scene

__all__ = ["Scene"]
