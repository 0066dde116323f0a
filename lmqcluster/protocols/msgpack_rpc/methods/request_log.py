"""Request log of MessagePack-RPC: methods that write a log line. If it is off, requests do not pass through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog

from ....wire.errors import LmqError
from ..connection.connection import Connection, Handler

__all__ = ["logged"]

log = structlog.get_logger("lmq.requests")

_NAMED: Final = frozenset(
    (
        *(b"push", b"pull", b"push_all", b"pull_any", b"done", b"retain", b"release", b"delete", b"update_props"),
        *(b"push_many", b"pull_many", b"done_many", b"retain_many", b"release_many", b"put_back_many", b"peek"),
        b"peek_ranges",
    )
)
"""Methods whose first argument is a queue or a pattern. Arguments of others may contain secrets, and are not logged."""


def logged(methods: Mapping[bytes, Handler]) -> dict[bytes, Handler]:
    """Return the same methods; each call logs the request and the error code if it is refused.

    The line is written once the request is accepted. Its answer comes later, together with those of other requests.
    """
    return {name: _logged(name, handler) for name, handler in methods.items()}


def _logged(name: bytes, handler: Handler) -> Handler:
    method = name.decode()
    is_named = name in _NAMED

    def call(connection: Connection, msgid: Any, arguments: list[Any]) -> None:
        fields = {"method": method, "client": connection.peer()}
        if is_named and arguments and type(arguments[0]) is bytes:
            fields["queue"] = arguments[0].decode(errors="backslashreplace")
        try:
            handler(connection, msgid, arguments)
        except LmqError as exc:
            log.info("request", protocol="msgpack_rpc", **fields, error=exc.code)
            raise
        log.info("request", protocol="msgpack_rpc", **fields)

    return call
