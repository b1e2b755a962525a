"""Pictures of a schedule at a single moment: waiting, running and finished jobs."""

from dagsim.pictures.scene import Scene

__all__ = ["Scene"]
