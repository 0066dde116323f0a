"""Connections to the cluster, with errors that say which option they come from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lmqcluster import Client, LmqError

from .errors import OptionError
from .options import Connection, Selection

__all__ = ["connect", "selection_errors"]


def connect(connection: Connection) -> Client:
    """A client that some node has answered; to be closed.

    Raises:
        LmqError: ``unreachable``, if none answers within ``lmq.timeout``; ``unauthorized`` if they refuse the token.
        OptionError: the file of ``lmq.tls.ca`` cannot be used.
    """
    try:
        client = Client(
            connection.servers,
            timeout_s=connection.timeout_s,
            connect_timeout_s=connection.connect_timeout_s,
            token=connection.token,
            tls_ca=connection.tls_ca,
        )
    except OSError as exc:
        raise OptionError("lmq.tls.ca", f"= {connection.tls_ca!r} cannot be used: {exc}") from exc
    try:
        client.ping()
    except LmqError as exc:
        client.close(0)
        raise LmqError(
            exc.code,
            f"lmq: no node of option 'lmq.servers' = {connection.servers!r} has answered within {connection.timeout_s:g} s "
            f"(option 'lmq.timeout'): {exc.message}",
        ) from exc
    return client


@contextmanager
def selection_errors(selection: Selection) -> Iterator[None]:
    """Calls within the block that fail because of the queue's name or the pattern raise an `OptionError` about that option."""
    try:
        yield
    except LmqError as exc:
        if exc.code == "bad_pattern":
            raise OptionError("subscribePattern", f"= {selection.pattern!r} is refused: {exc.message}") from exc
        if exc.code == "bad_name":
            raise OptionError("subscribe", f"= {selection.queue!r} is refused: {exc.message}") from exc
        raise
