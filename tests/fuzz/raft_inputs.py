"""Bad input for the Raft port that cannot authenticate: frames of wrong sizes, handshakes with a wrong
secret, garbage.
"""

from __future__ import annotations

import random
from typing import Any

import msgpack

from .inputs import INTERESTING, Input, cut, mutated

__all__ = ["raft_input"]

_MAGIC = b"lmqcluster-raft"


def _frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def _field(rng: random.Random) -> Any:
    return rng.choice(
        (
            None,
            True,
            0,
            1,
            2,
            3,
            -1,
            2**63,
            "stranger",
            "127.0.0.1:1",
            b"",
            b"x" * 32,
            rng.randbytes(32),
            "n" * 3000,
            [],
            [[]] * 50,
            {},
        )
    )


def _hello(rng: random.Random) -> bytes:
    fields: list[Any] = [
        _MAGIC,
        rng.choice((1, 2, 2, 3)),
        "stranger",
        rng.randrange(2**32),
        "127.0.0.1:1",
        rng.randbytes(32),
    ]
    for _ in range(rng.choice((0, 0, 1, 2))):
        fields[rng.randrange(len(fields))] = _field(rng)
    if rng.random() < 0.2:
        fields = fields[: rng.randrange(len(fields))]
    return bytes(msgpack.packb(fields))


def raft_input(rng: random.Random) -> Input:
    """Return input of an unauthenticated client of the Raft port."""
    kind = rng.random()
    if kind < 0.2:
        data = rng.randbytes(rng.choice((1, 4, 100, 5000, 100_000)))
    elif kind < 0.3:
        data = rng.choice((0, 1, 4096, 4097, 2**26, 2**31, 2**32 - 1)).to_bytes(4, "big") + rng.randbytes(
            rng.choice((0, 10, 5000))
        )
    elif kind < 0.4:
        data = _frame(bytes(msgpack.packb([_field(rng) for _ in range(rng.randrange(6))])))
    else:
        proof = bytes(msgpack.packb([rng.randbytes(rng.choice((0, 31, 32, 33)))]))
        more = [
            proof,
            bytes(msgpack.packb({"type": "ask", "verb": "status", "arguments": []})),
            rng.choice(INTERESTING),
        ]
        frames = [_hello(rng), *rng.sample(more, rng.randrange(4))]
        data = b"".join(map(_frame, frames))
    if rng.random() < 0.4:
        data = mutated(rng, data)
    return cut(rng, data, "raft")
