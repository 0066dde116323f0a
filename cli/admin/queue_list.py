"""The queues of a cluster, and whether there is one."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from typing import Any

from lmqcluster.wire.errors import LmqError

from ..shared.api import Api
from .contents import content_bytes

__all__ = ["all_queues", "queue_exists", "queue_path", "require_queue"]


def queue_path(name: str) -> str:
    """The path of a queue."""
    return f"/v1/queues/{Api.segment(name)}"


def all_queues(api: Api, **query: str | bytes) -> Iterator[dict[str, Any]]:
    """Every queue of the cluster that the query matches, page by page, sorted by name."""
    after: dict[str, bytes] = {}
    while True:
        page = api.get(f"/v1/queues?{urllib.parse.urlencode({**query, **after})}")
        yield from page["queues"]
        following = page["next"]
        if following is None:
            return
        after = {"after": content_bytes(following)}


def require_queue(api: Api, name: str) -> None:
    """Return if there is such a queue.

    Raises:
        LmqError: ``queue_not_found``, as every command ends that is given the name of a queue which is not there.
    """
    api.get(queue_path(name))


def queue_exists(api: Api, name: str) -> bool:
    """Whether there is such a queue."""
    try:
        require_queue(api, name)
    except LmqError as exc:
        if exc.code != "queue_not_found":
            raise
        return False
    return True
