"""A multiset of rows of which only the digests are known."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

__all__ = ["DIGEST_BYTES", "RowDigests", "split"]

DIGEST_BYTES = 16
_KEY_BYTES = 4
_BUCKET_DIGESTS = 64
_BUCKETS_MAX = 1 << 16
_CHUNK_BYTES = 16 * 1024


def split(digests: bytes) -> Iterator[bytes]:
    """Yield the consecutive digests in `digests`."""
    return (digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES))


def _chunks(buckets: list[bytes]) -> Iterator[bytes]:
    chunk = bytearray()
    for bucket in buckets:
        chunk += bucket
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _place(bucket: bytes, digest: bytes) -> int:
    """Return the offset at which a digest is in a bucket, or belongs: buckets are sorted, so that equal sets are equal."""
    low, high = 0, len(bucket) // DIGEST_BYTES
    while low < high:
        middle = (low + high) // 2
        if bucket[middle * DIGEST_BYTES : (middle + 1) * DIGEST_BYTES] < digest:
            low = middle + 1
        else:
            high = middle
    return low * DIGEST_BYTES


class RowDigests:
    """A multiset of digests in buckets of about 64: little more than 16 bytes for each.

    Clients choose the digests. The buckets follow from a seed that they do not know, so they cannot overfill one of
    them.

    Attributes:
        seed: random bytes, at most 64, the same on every replica.
        expected: approximate maximum number of digests.
    """

    def __init__(self, seed: bytes, expected: int) -> None:
        self.seed = seed
        self.expected = expected
        self._count = 0
        self._modulus = max(1, min(_BUCKETS_MAX, expected // _BUCKET_DIGESTS))
        self._buckets: dict[int, bytes] = {}

    def __len__(self) -> int:
        """Return the number of digests with multiplicity."""
        return self._count

    def add(self, digest: bytes) -> None:
        """Add a digest."""
        key = self._key(digest)
        bucket = self._buckets.get(key, b"")
        at = _place(bucket, digest)
        self._buckets[key] = bucket[:at] + digest + bucket[at:]
        self._count += 1

    def take(self, digest: bytes) -> bool:
        """Remove a digest once; False if it is not there."""
        key = self._key(digest)
        bucket = self._buckets.get(key, b"")
        at = _place(bucket, digest)
        if bucket[at : at + DIGEST_BYTES] != digest:
            return False
        left = bucket[:at] + bucket[at + DIGEST_BYTES :]
        if left:
            self._buckets[key] = left
        else:
            del self._buckets[key]
        self._count -= 1
        return True

    def buckets(self) -> list[bytes]:
        """Return the digests by buckets; equal sets give equal lists."""
        return [bucket for _, bucket in sorted(self._buckets.items())]

    def chunks(self) -> Iterator[bytes]:
        """Yield all digests as of now, in chunks; equal sets give equal ones. The set may change while they are read."""
        return _chunks(self.buckets())

    def _key(self, digest: bytes) -> int:
        return int.from_bytes(blake2b(digest, digest_size=_KEY_BYTES, key=self.seed).digest(), "big") % self._modulus
