"""Reader of request bodies with limits on size, time without progress, and memory of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import EMPTY_PAYLOAD, hdrs, web
from aiohttp.web_protocol import RequestPayloadError

from .....node.gates import ARRIVAL_BYTES_PER_S
from .....wire.errors import LmqError
from ..replies.reply import CONTINUE

__all__ = ["REQUEST_S", "BodyReader"]

STALL_S: Final = 30.0
"""Time in seconds after which a body without progress is given up."""
REQUEST_S: Final = 30.0
"""Time in seconds in which a body must arrive, plus one second for every 64 KiB of it."""


class BodyReader:
    """Reader of the body of one request."""

    __slots__ = ("_hold", "_request", "_request_s")

    def __init__(self, request: web.BaseRequest, hold: Callable[[int], None], request_s: float) -> None:
        """Prepare to read the body of `request`; `hold` counts its bytes and raises ``overloaded`` if there is no room."""
        self._request = request
        self._hold = hold
        self._request_s = request_s

    async def read(self, bytes_max: int) -> bytes:
        """Return the whole body.

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
            # Memory for the pieces and for the joined body.
            self._hold(2 * length)
            self._expect(headers.get(hdrs.EXPECT))
            return await self._collect(bytes_max, length)
        except RequestPayloadError as exc:
            raise LmqError("bad_request", f"the request body is broken: {exc}") from exc

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
            left_s = began_s + self._request_s + size / ARRIVAL_BYTES_PER_S - now()
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
            # A chunked body has no announced length, so it is counted as it arrives.
            if not announced:
                self._hold(2 * size)
            pieces.append(piece)
        return b"".join(pieces)
