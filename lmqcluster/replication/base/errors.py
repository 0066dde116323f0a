"""Errors that stop replication."""

from __future__ import annotations

__all__ = ["FatalReplicationError"]


class FatalReplicationError(RuntimeError):
    """The node must stop: continuing could break a promise; restarting is safe."""
