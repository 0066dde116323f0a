"""Bad input for one connection, derived from a seed and a number, so that it is reproducible."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Input", "cut", "mutated", "rng_of"]

INTERESTING = (
    *(
        b"\x00",
        b"\xff",
        b"\x7f",
        b"\x80",
        b"\xc1",
        b"\r\n\r\n",
        b"\n",
        b"%",
        b"%00",
        b"../",
        b"\xed\xa0\x80",
        b"\xc0\x80",
    ),
    *(
        b"-1",
        b"18446744073709551616",
        b"9" * 40,
        b"0x10",
        b"1e999",
        b"NaN",
        b"\xdb\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
    ),
    *(b"\xdf\xff\xff\xff\xff", b"\x91" * 600, b"[" * 3000, b"{" * 500, b"\xd6\xff\x00\x00\x00\x00", b"A" * 5000),
)


@dataclass(frozen=True, slots=True)
class Input:
    """The data sent on one connection.

    Attributes:
        port: ``http``, ``rpc``, ``raft``, ``memcache``, ``text``, ``thrift`` or ``sqs``.
        pieces: sent one after the other, with a pause after each.
        pause_s: the pause.
        ending: ``close``, ``half`` (no more is sent, but read), ``abort`` (reset), or ``linger`` (silence for a moment).
    """

    port: str
    pieces: tuple[bytes, ...]
    pause_s: float
    ending: str


def rng_of(seed: int, number: int) -> random.Random:
    """Return the random numbers of one input."""
    return random.Random(f"{seed}/{number}")


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return the data with a few changes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(7)
        if kind == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 1 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del out[at : at + rng.randint(1, 16)]
        elif kind == 3:
            out[at:at] = out[at : at + rng.randint(1, 64)]
        elif kind == 4:
            out[at:at] = rng.choice(INTERESTING)
        elif kind == 5:
            out[at : at + 4] = rng.randbytes(rng.randint(1, 5))
        else:
            del out[at:]
    return bytes(out)


def cut(rng: random.Random, data: bytes, port: str) -> Input:
    """Return an input that sends the data whole or in pieces, and ends the connection in some way."""
    pieces: Sequence[bytes] = [data]
    pause_s = 0.0
    if len(data) > 1 and rng.random() < 0.3:
        marks = sorted(rng.randrange(len(data)) for _ in range(rng.randint(1, 4)))
        edges = [0, *marks, len(data)]
        pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
        pause_s = rng.choice((0.0, 0.001, 0.02))
    ending = rng.choices(("close", "half", "abort", "linger"), (4, 4, 2, 1))[0]
    return Input(port, tuple(pieces), pause_s, ending)
