"""Pages in memory, encoded as the files are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import xxhash

from lmqcluster.core.messages.pages import PageError

__all__ = ["MemoryPages"]


class MemoryPages:
    """A `PageStore`.

    Attributes:
        payloads: the encoded pages by name.
        wanted: pages that were requested ahead of need.
    """

    def __init__(self) -> None:
        self.payloads: dict[bytes, bytes] = {}
        self.wanted: list[bytes] = []

    def save(self, columns: list[Any]) -> bytes:
        payload: bytes = msgpack.packb(columns)
        page: bytes = xxhash.xxh3_128_digest(payload)
        self.payloads[page] = payload
        return page

    def load(self, page: bytes) -> list[Any]:
        if page not in self.payloads:
            raise PageError(f"the page {page.hex()} is lost")
        columns: list[Any] = msgpack.unpackb(self.payloads[page], strict_map_key=False)
        return columns

    def is_ready(self, page: bytes) -> bool:
        return False

    def want(self, page: bytes) -> None:
        self.wanted.append(page)

    def fetch(self, page: bytes, done: Callable[[bool], None]) -> None:
        self.wanted.append(page)
        done(page in self.payloads)

    def is_busy(self) -> bool:
        return False
