"""Repeats requests while a busy machine leaves the cluster without a leader."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .raw_http import Answer
from .raw_rpc import RpcError

__all__ = ["error_text", "patiently", "repeatedly", "was_refused_for_now"]

PATIENCE_S = 120.0
"""Maximum time without a leader on a busy machine."""


def patiently(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, repeating it while it is refused because there is no leader.

    Raises:
        RpcError: it is refused for another reason.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while was_refused_for_now(result := _outcome(function, *arguments)):
        assert time.monotonic() < deadline_s, f"{str(arguments)[:200]}: {result!r} for {PATIENCE_S:g} s"
    if isinstance(result, RpcError):
        raise result
    return result


def repeatedly(function: Callable[..., Any], *arguments: Any) -> Any:
    """Behave as `patiently`, but repeat calls with an unknown outcome too, so that they may take effect twice.

    Use it for calls that a busy machine cannot finish within the cluster's deadline and that do no harm twice.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            result = patiently(function, *arguments)
        except RpcError as exc:
            result = exc
        if not error_text(result).startswith(b"unknown_outcome"):
            break
        assert time.monotonic() < deadline_s, f"{str(arguments)[:200]}: {result!r} for {PATIENCE_S:g} s"
    if isinstance(result, RpcError):
        raise result
    return result


def was_refused_for_now(result: Any) -> bool:
    """Return whether an answer, or the error of a reply, says that there was no leader: nothing has happened then."""
    return error_text(result).startswith(b"no_leader")


def error_text(result: Any) -> bytes:
    """Return the error of an answer, or of a reply; empty if it is none."""
    if isinstance(result, Answer):
        return result.headers.get("x-lmq-error", b"")
    text = result.text if isinstance(result, RpcError) else result
    return text if isinstance(text, bytes) else b""


def _outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except RpcError as exc:
        return exc
