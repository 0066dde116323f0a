"""Errors of the ``/v1`` routes: ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from .....wire.errors import LmqError
from .common_replies import RETRY_AFTER, WWW_AUTHENTICATE
from .compact_json import dumps
from .reply import Reply

__all__ = ["HttpRefusalError", "on_error", "refuse", "route_not_found"]

_TYPE = b"content-type: application/problem+json\r\n"
_MORE = {401: WWW_AUTHENTICATE, 503: RETRY_AFTER}


class HttpRefusalError(LmqError):
    """Refusal of a request that is invalid as HTTP, independent of its route.

    Attributes:
        status: HTTP status.
        http_code: the problem's code.
    """

    def __init__(self, status: int, http_code: str, message: str) -> None:
        super().__init__("bad_request", message)
        self.status = status
        self.http_code = http_code


def on_error(error: LmqError) -> Reply:
    """Return an error with its code, whether a retry is safe, and the known outcome."""
    if isinstance(error, HttpRefusalError):
        status, code, title = error.status, error.http_code, HTTPStatus(error.status).phrase
    else:
        status, code, title = error.spec.http, error.code, error.spec.title
    body = {
        "type": f"urn:lmqcluster:error:{code}",
        "title": title,
        "status": status,
        "detail": error.message,
        "code": code,
        "retryable": error.retryable,
        "outcome": error.outcome.value,
    }
    head = _TYPE + _MORE.get(status, b"")
    return Reply(status, head, dumps(body).encode("utf-8", "replace"), close=error.code == "too_large")


def refuse(*allowed: str) -> Callable[[int], Reply]:
    """Return the answer to a method that a route does not have, 405 or 501."""
    allow = f"allow: {', '.join(allowed)}\r\n".encode()

    def lay_out(status: int) -> Reply:
        if status == 501:
            return on_error(HttpRefusalError(501, "not_implemented", "the method is not one this server knows"))
        reply = on_error(
            HttpRefusalError(405, "method_not_allowed", f"this route takes {', '.join(allowed)}; see /openapi.json")
        )
        reply.head += allow
        return reply

    return lay_out


def route_not_found() -> Reply:
    """Return 404 for a path below ``/v1`` that does not exist."""
    return on_error(HttpRefusalError(404, "route_not_found", "there is no such route; /openapi.json lists all"))
