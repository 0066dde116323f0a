"""Why replication stops."""

from __future__ import annotations

__all__ = ["FatalReplicationError"]


class FatalReplicationError(RuntimeError):
    """The node must stop: going on could break a promise; restarting is safe."""
