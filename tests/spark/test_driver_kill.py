"""A query whose driver is killed without warning, again and again: the table holds every message once."""

from __future__ import annotations

from pathlib import Path

from .driver_kill import Kill, drill


def test_every_message_once_though_drivers_and_a_node_are_killed(tmp_path: Path, queue: str) -> None:
    """Where a micro-batch has just been planned, it is neither read nor written."""
    drill(tmp_path, queue, [Kill(planned=1, node="leader"), Kill(planned=4)])
