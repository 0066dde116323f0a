"""Keys that grant access to queues by name prefix, for clients that know no tokens.

As with tokens, the core only stores their digests; the nodes enforce them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..log.results import RefusedError
from .tokens import DIGEST_BYTES

__all__ = ["ApiKeys"]

KEYS_MAX = 10_000
PREFIX_BYTES_MAX = 255


class ApiKeys:
    """Prefixes of queue names by the SHA-256 digest of a key.

    Attributes:
        revision: changes with every change, like that of `Tokens`.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._prefixes: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._prefixes)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the digests of all keys with their prefixes, sorted."""
        return iter(sorted(self._prefixes.items()))

    def prefix(self, digest: bytes) -> bytes | None:
        """Return the prefix of the queue names that the key grants access to; None if there is no such key."""
        return self._prefixes.get(digest)

    def set(self, digest: bytes, prefix: bytes) -> bool:
        """Add a key, or replace its prefix.

        Raises:
            ValueError: one of them is malformed.
            RefusedError: ``quota_exceeded`` if there are too many.
        """
        if {type(digest), type(prefix)} != {bytes} or len(digest) != DIGEST_BYTES or len(prefix) > PREFIX_BYTES_MAX:
            raise ValueError(f"the digest of a key has {DIGEST_BYTES} bytes, and its prefix at most {PREFIX_BYTES_MAX}")
        if digest not in self._prefixes and len(self._prefixes) >= KEYS_MAX:
            raise RefusedError("quota_exceeded", f"there are {KEYS_MAX} API keys, the limit; delete some")
        self._prefixes[digest] = prefix
        self.revision += 1
        return True

    def delete(self, digest: bytes) -> bool:
        """Delete a key; False if there is none."""
        if self._prefixes.pop(digest, None) is None:
            return False
        self.revision += 1
        return True

    def rows(self) -> Iterator[list[object]]:
        """Return the digests of all keys with their prefixes, sorted, as of now."""
        return ([digest, prefix] for digest, prefix in self)

    def load(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Add the rows of a snapshot."""
        for digest, prefix in rows:
            self.set(digest, prefix)
