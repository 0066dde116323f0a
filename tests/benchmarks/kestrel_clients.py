"""Lean clients for the load of Kestrel's clients: they compare answers byte for byte, so that mostly the
servers are measured.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

import msgpack

__all__ = ["ITEM", "MemcacheClient", "PlainMemcacheClient", "RpcClient"]

ITEM = b"x" * 1024
LEAK_EVERY = 10
ANSWERS_S = 60.0
_CHUNK_BYTES = 1 << 18


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Self:
        """Connect."""
        return cls(*await asyncio.open_connection(*address, limit=1 << 22))

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


class MemcacheClient(_Connection):
    """Kestrel's memcache protocol, or the part of it that equals memcached's.

    Attributes:
        options: text after the name of the queue in a get.
    """

    options = b"/t=60000/close/open"

    async def put(self, queue: bytes, count: int, depth: int) -> int:
        """Put `count` items, `depth` at a time; all must be stored. Return their number."""
        request = b"set %b 0 0 %d\r\n%b\r\n" % (queue, len(ITEM), ITEM)
        return await self._ask(request, b"STORED\r\n", count, depth)

    async def get(self, queue: bytes, count: int, depth: int) -> int:
        """Get `count` items and close each, `depth` at a time; all must be there. Return their number."""
        answer = b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (queue, len(ITEM), ITEM)
        return await self._ask(b"get %b%b\r\n" % (queue, self.options), answer, count, depth)

    async def _ask(self, request: bytes, answer: bytes, count: int, depth: int) -> int:
        for start in range(0, count, depth):
            size = min(depth, count - start)
            self.writer.write(request * size)
            async with asyncio.timeout(ANSWERS_S):
                said = await self.reader.readexactly(len(answer) * size)
            if said != answer * size:
                raise RuntimeError(f"not {answer[:40]!r}: {said[:80]!r}")
        return count

    async def leak(self, queue: bytes, count: int) -> int:
        """Get `count` items, aborting every tenth and getting it again."""
        end = b"END\r\n"
        answer = b"VALUE %b 0 %d\r\n%b\r\n%b" % (queue, len(ITEM), ITEM, end)
        for number in range(count):
            await self._ask(b"get %b/open\r\n" % queue, answer, 1, 1)
            if number % LEAK_EVERY == 0:
                await self._ask(b"get %b/abort\r\nget %b/t=60000/open\r\n" % (queue, queue), end + answer, 1, 1)
            await self._ask(b"get %b/close\r\n" % queue, end, 1, 1)
        return count


class PlainMemcacheClient(MemcacheClient):
    """A client of memcached, which has no options."""

    options = b""


class RpcClient(_Connection):
    """The same load over MessagePack-RPC: push; pull, and done with the next pull."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._unpacker = msgpack.Unpacker(raw=True)

    async def put(self, queue: bytes, count: int, depth: int) -> int:
        """Put items (see `MemcacheClient.put`)."""
        request = _request(b"push", queue, ITEM)
        for start in range(0, count, depth):
            size = min(depth, count - start)
            self.writer.write(request * size)
            await self._answers(size)
        return count

    async def get(self, queue: bytes, count: int, depth: int) -> int:
        """Get items (see `MemcacheClient.get`)."""
        pull, ids = _request(b"pull", queue, 60), list[bytes]()
        for start in range(0, count, depth):
            size = min(depth, count - start)
            self.writer.write(b"".join([_request(b"done", queue, one) for one in ids]) + pull * size)
            answers = await self._answers(len(ids) + size)
            ids = [one[b"id"] for one in answers if type(one) is dict]
            if len(ids) != size:
                raise RuntimeError("an item is missing")
        self.writer.write(b"".join([_request(b"done", queue, one) for one in ids]))
        await self._answers(len(ids))
        return count

    async def _answers(self, count: int) -> list[Any]:
        results: list[Any] = []
        async with asyncio.timeout(ANSWERS_S):
            while True:
                for _, _, error, result in self._unpacker:
                    if error is not None:
                        raise RuntimeError(f"an error: {error!r}")
                    results.append(result)
                if len(results) >= count:
                    return results
                self._unpacker.feed(await self.reader.read(_CHUNK_BYTES))


def _request(method: bytes, *arguments: object) -> bytes:
    data: bytes = msgpack.packb([0, 0, method, list(arguments)], use_bin_type=False)
    return data
