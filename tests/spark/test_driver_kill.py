"""A query whose driver is killed abruptly and repeatedly: the table holds every message once."""

from __future__ import annotations

from pathlib import Path

from .driver_kill import Kill, drill


def test_every_message_arrives_once_although_drivers_and_a_node_are_killed(tmp_path: Path, queue: str) -> None:
    """A micro-batch that has just been planned is neither read nor written yet."""
    drill(tmp_path, queue, [Kill(planned=1, node="leader"), Kill(planned=4)])
