"""Base class and result decoders of the asynchronous client's groups of calls."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable
from typing import Any

from ..transport.calls import Call
from ..transport.replies import decode_strings

__all__ = ["CallBase", "concatenated", "mapping", "mappings", "note_failure", "ok", "optional_mapping"]

logger = logging.getLogger("lmqcluster.client")


class CallBase(ABC):
    """Base class of the groups of calls."""

    @abstractmethod
    def _call(self, kind: Callable[..., Call], body: bytes, decode: Callable[[Any], Any]) -> Future[Any]:
        """Send a request. Awaited, return the decoded answer."""


def ok(result: Any) -> str:
    """Decode the answer "ok"."""
    if result != b"ok":
        raise ValueError("expected ok")
    return "ok"


def mapping(result: Any) -> dict[str, Any]:
    """Decode an answer that is a map."""
    return {str(key): value for key, value in decode_strings(result).items()}


def optional_mapping(result: Any) -> dict[str, Any] | None:
    """Decode an answer that is a map or nil."""
    return None if result is None else mapping(result)


def mappings(results: Any) -> list[dict[str, Any]]:
    """Decode an answer that is a list of maps."""
    return [mapping(result) for result in results]


async def concatenated(parts: list[Future[list[str]]]) -> list[str]:
    """Return the results of a batch that was sent as several requests."""
    return [result for results in await asyncio.gather(*parts) for result in results]


def note_failure(future: Future[Any]) -> None:
    """Log that messages without a receiver could not be returned."""
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.warning("messages could not be given back, their leases have to run out: %s", error)
