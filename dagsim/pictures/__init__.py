"""A schedule at one moment as a picture: what waits, what runs where, and what has ended."""

from dagsim.pictures.scene import Scene

__all__ = ["Scene"]
