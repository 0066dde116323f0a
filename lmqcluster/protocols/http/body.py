"""Reading request bodies: bounded in size, in time without progress, and in what all connections hold together."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import EMPTY_PAYLOAD, hdrs, web
from aiohttp.web_protocol import RequestPayloadError

from ...node.gates import ARRIVAL_BYTES_PER_S
from ...wire.errors import LmqError
from .reply import CONTINUE

__all__ = ["BUDGET_BYTES", "REQUEST_S", "BodyReader", "Budget"]

SMALL_BYTES: Final = 64 * 1024
"""Bodies up to here are not counted: the parser's buffers bound them already."""
BUDGET_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of large bodies that one node holds for unfinished requests."""
STALL_S: Final = 30.0
"""A client that sends nothing of an announced body for so long is given up."""
REQUEST_S: Final = 30.0
"""How long a body may take to arrive, and one second more for every 64 KiB of it."""


class Budget:
    """Counts the bytes that large bodies occupy, over all connections of a node.

    Attributes:
        request_s: how long a small body may take.
    """

    __slots__ = ("_bytes_max", "_held", "request_s")

    def __init__(self, bytes_max: int = BUDGET_BYTES, request_s: float = REQUEST_S) -> None:
        self.request_s = request_s
        self._bytes_max = bytes_max
        self._held = 0

    def take(self, size: int) -> None:
        """Set `size` bytes aside.

        Raises:
            LmqError: ``overloaded`` if so much is not left.
        """
        if self._held + size > self._bytes_max:
            raise LmqError("overloaded", "the bodies of the requests under way fill the node's buffers; try again")
        self._held += size

    def give_back(self, size: int) -> None:
        """Release what `take` set aside."""
        self._held -= size


class BodyReader:
    """Reads the body of one request; `release` must follow once the request is answered."""

    __slots__ = ("_budget", "_held", "_request")

    def __init__(self, request: web.BaseRequest, budget: Budget) -> None:
        self._request = request
        self._budget = budget
        self._held = 0

    async def read(self, bytes_max: int) -> bytes:
        """The whole body.

        Raises:
            LmqError: ``too_large`` above `bytes_max`, ``overloaded``, or ``bad_request`` for a broken or stalled body.
        """
        payload = self._request.content
        headers = self._request.headers
        try:
            if payload.is_eof():
                data = payload.read_nowait()
                self._check(len(data), bytes_max)
                return data
            length = int(headers.get(hdrs.CONTENT_LENGTH, "0"))
            self._check(length, bytes_max)
            self._hold(length)
            self._expect(headers.get(hdrs.EXPECT))
            return await self._collect(bytes_max, length)
        except RequestPayloadError as exc:
            raise LmqError("bad_request", f"the request body is broken: {exc}") from exc

    def release(self) -> None:
        """Give the budget back. Harmless when repeated."""
        self._budget.give_back(self._held)
        self._held = 0

    def _hold(self, size: int) -> None:
        if size > SMALL_BYTES:
            self._budget.take(size)
            self._held += size

    def _check(self, size: int, bytes_max: int) -> None:
        if size > bytes_max:
            raise LmqError("too_large", f"the body has more than {bytes_max} bytes; send less in one request")

    def _expect(self, expectation: str | None) -> None:
        if expectation is None or expectation.lower() != "100-continue" or self._request.version.minor == 0:
            return
        transport = self._request.transport
        if transport is not None and self._request.content is not EMPTY_PAYLOAD:
            transport.write(CONTINUE)

    async def _collect(self, bytes_max: int, announced: int) -> bytes:
        payload = self._request.content
        pieces: list[bytes] = []
        size = 0
        now = asyncio.get_running_loop().time
        began_s = now()
        while not payload.at_eof():
            left_s = began_s + self._budget.request_s + size / ARRIVAL_BYTES_PER_S - now()
            try:
                async with asyncio.timeout(min(STALL_S, max(0.0, left_s))):
                    piece = await payload.readany()
            except TimeoutError as exc:
                text = f"the announced body did not arrive in time: {size} bytes of it in {now() - began_s:.0f} s"
                raise LmqError("bad_request", text) from exc
            if not piece:
                break
            size += len(piece)
            self._check(size, bytes_max)
            # A chunked body announces nothing: it is counted as it comes.
            if not announced:
                self._hold_more(size)
            pieces.append(piece)
        return b"".join(pieces)

    def _hold_more(self, size: int) -> None:
        if size > self._held and size > SMALL_BYTES:
            self._budget.take(size - self._held)
            self._held = size
