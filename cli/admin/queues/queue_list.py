"""Lists the queues of a cluster."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import click

from lmqcluster.wire.errors import LmqError

from ...shared.connection.api import Api
from .contents import content_bytes

__all__ = ["all_queues", "queue_exists", "queue_path", "require_queue", "sequence_option"]


def sequence_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--sequence``, which may be given several times; the function gets the numbers as `sequences`."""
    text = "Only the dead letter or expired message with this sequence, as `message peek` shows it; may be repeated."
    return click.option("--sequence", "sequences", type=click.IntRange(0), multiple=True, metavar="N", help=text)(
        function
    )


def queue_path(name: str) -> str:
    """Return the API path of a queue."""
    return f"/v1/queues/{Api.segment(name)}"


def all_queues(api: Api, **query: str | bytes) -> Iterator[dict[str, Any]]:
    """Yield every queue of the cluster that matches the query, page by page, sorted by name."""
    after: dict[str, bytes] = {}
    while True:
        page = api.get(f"/v1/queues?{urllib.parse.urlencode({**query, **after})}")
        yield from page["queues"]
        following = page["next"]
        if following is None:
            return
        after = {"after": content_bytes(following)}


def require_queue(api: Api, name: str) -> None:
    """Check that a queue exists.

    Raises:
        LmqError: ``queue_not_found``, the common error of commands for a missing queue.
    """
    api.get(queue_path(name))


def queue_exists(api: Api, name: str) -> bool:
    """Return whether a queue exists."""
    try:
        require_queue(api, name)
    except LmqError as exc:
        if exc.code != "queue_not_found":
            raise
        return False
    return True
