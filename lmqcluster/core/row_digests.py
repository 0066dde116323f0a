"""A multiset of rows of which only the digests are known."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

__all__ = ["DIGEST_BYTES", "RowDigests", "split"]

DIGEST_BYTES = 16
_KEY_BYTES = 2
_CHUNK_BYTES = 16 * 1024


def split(digests: bytes) -> Iterator[bytes]:
    """Yield the digests that follow one another in `digests`."""
    return (digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES))


def _chunks(buckets: dict[bytes, bytes]) -> Iterator[bytes]:
    chunk = bytearray()
    for _, bucket in sorted(buckets.items()):
        chunk += b"".join(sorted(split(bucket)))
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


class RowDigests:
    """Digests, each as often as it was added; 16 bytes for each and about 50 more for each of 65,536 buckets.

    Clients choose the digests. The buckets follow from a seed that they do not know, so that they cannot fill one of them.

    Attributes:
        seed: random bytes, at most 64, the same on every replica.
    """

    def __init__(self, seed: bytes) -> None:
        self.seed = seed
        self._count = 0
        self._buckets: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        """Return how many there are, equal ones counted as often as they were added."""
        return self._count

    def add(self, digest: bytes) -> None:
        """Add a digest."""
        key = self._key(digest)
        self._buckets[key] = self._buckets.get(key, b"") + digest
        self._count += 1

    def take(self, digest: bytes) -> bool:
        """Remove a digest once; False if it is not there."""
        key = self._key(digest)
        bucket = self._buckets.get(key, b"")
        at = bucket.find(digest)
        while at >= 0 and at % DIGEST_BYTES:
            at = bucket.find(digest, at + 1)
        if at < 0:
            return False
        left = bucket[:at] + bucket[at + DIGEST_BYTES :]
        if left:
            self._buckets[key] = left
        else:
            del self._buckets[key]
        self._count -= 1
        return True

    def chunks(self) -> Iterator[bytes]:
        """Return all digests as of now, in records; equal sets give equal ones. The set may change while they are read."""
        return _chunks(self._buckets.copy())

    def _key(self, digest: bytes) -> bytes:
        return blake2b(digest, digest_size=_KEY_BYTES, key=self.seed).digest()
