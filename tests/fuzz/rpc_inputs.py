"""Bad MessagePack-RPC: calls of every method with wrong arguments, mutated requests, unbounded values."""

from __future__ import annotations

import random
from typing import Any

import msgpack

from .inputs import INTERESTING, Input, cut, mutated

__all__ = ["rpc_input"]

_METHODS = (
    *(
        "push",
        "push_many",
        "pull",
        "pull_many",
        "push_all",
        "pull_any",
        "done",
        "release",
        "retain",
        "done_many",
        "release_many",
    ),
    *(
        "retain_many",
        "put_back_many",
        "delete",
        "purge",
        "move",
        "suspend",
        "resume",
        "update_props",
        "cancel",
    ),
    *(
        "set_default_props",
        "get_default_props",
        "reserve_batch",
        "read_batch",
        "cut_batch",
        "incarnation",
        "renew_batches",
        "settle_batches",
        "abandon_batches",
    ),
    *(
        "withdraw",
        "count_labelled",
        "redrive",
        "start_move_task",
        "cancel_move_task",
        "move_tasks",
        "bind",
        "unbind",
        "bindings",
        "transaction",
    ),
    *("subscription", "subscriptions", "backlog", "peek", "ping", "producer", "auth", "cluster", "nothing", "", "\x00"),
)
_ID = "0fe7f7b1-0c4f-4bd0-8c4b-1f7e3f2d0c11"
_SMALLEST = (b"\x90", b"\x80", b"\xc0", b"\x91", b"\x81", b"\xa0")
"""Values of one byte, some of which expect more."""


def _scalar(rng: random.Random) -> Any:
    return rng.choice(
        (
            *(
                None,
                True,
                False,
                0,
                1,
                -1,
                255,
                2**31,
                2**63,
                2**64 - 1,
                -(2**63),
                0.5,
                1e300,
                float("nan"),
                float("inf"),
                float("-inf"),
            ),
            *(
                "fuzz",
                "^fuzz",
                "fuzz2",
                "^fuzz(",
                "^fuzz" + "(a|b)*" * 50,
                "n" * 300,
                "",
                b"\xff\x00",
                _ID,
                "x" * 36,
                b"a producer",
            ),
            *("retry", "timeout", "hooks", "pack", "accum"),
            *(
                "key",
                "keys",
                "options",
                "delay",
                "due",
                "ttl",
                "priority",
                "label",
                "group",
                "lease",
                "auto_ack",
                "place",
            ),
            *("tail", "to", "max", "again", "max_items", "dead_letter_queue", "destination_queues"),
            *(
                msgpack.ExtType(rng.randrange(128), b"x" * rng.randrange(20)),
                msgpack.Timestamp(rng.randrange(2**33), 0),
            ),
        )
    )


def _value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(10 if depth < 5 else 8)
    if kind < 8:
        return _scalar(rng)
    if kind == 8:
        return [_value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 5, 40)))]
    return {_hashable(rng): _value(rng, depth + 1) for _ in range(rng.randrange(6))}


def _hashable(rng: random.Random) -> Any:
    value = _scalar(rng)
    return value if isinstance(value, (str, bytes, int)) else "key"


def _queue(rng: random.Random) -> Any:
    return rng.choice(("fuzz", "fuzz", "fuzz2", "^fuzz")) if rng.random() < 0.85 else _value(rng)


def _operation(rng: random.Random) -> Any:
    verb = rng.choice(("push", "done", "release", "retain"))
    if verb == "release" and rng.random() < 0.5:
        return [verb, _queue(rng), _ID, _nack_options(rng)]
    return [verb, _queue(rng), *(_value(rng) for _ in range(rng.randrange(3)))]


def _nack_options(rng: random.Random) -> Any:
    return {name: _scalar(rng) for name in rng.sample(("delay", "place", "reason", "again"), rng.randrange(1, 4))}


def _message(rng: random.Random) -> Any:
    msgid: Any = rng.randrange(2**32) if rng.random() < 0.9 else _value(rng)
    method: Any = rng.choice(_METHODS) if rng.random() < 0.95 else _value(rng)
    arguments: Any = [_queue(rng), *(_value(rng) for _ in range(rng.randrange(4)))]
    if method in ("pull_any", "push_all", "set_default_props", "backlog"):
        # These patterns must not match queues of others: an administrator's client may change those.
        arguments[0] = "^fuzz" if method != "set_default_props" else [["^fuzz", {"retry": _scalar(rng)}]]
    if method == "move":
        arguments[1:] = ["fuzz2"]
    if method in ("release", "release_many") and rng.random() < 0.5:
        arguments = [_queue(rng), _ID if method == "release" else [_ID], _nack_options(rng)]
    if method == "transaction" and rng.random() < 0.8:
        arguments[0] = [_operation(rng) for _ in range(rng.choice((0, 1, 3, 2000)))]
    if rng.random() < 0.05:
        arguments = _value(rng)
    if rng.random() < 0.1:
        return [2, method, arguments]
    return [rng.choice((0,) * 20 + (1, 2, 3, None, True)), msgid, method, arguments]


def _packed(rng: random.Random, value: Any) -> bytes:
    try:
        return bytes(msgpack.packb(value, use_bin_type=rng.random() < 0.2, use_single_float=rng.random() < 0.1))
    except (ValueError, OverflowError, TypeError):
        return b"\xc1"


def _worst(rng: random.Random) -> bytes:
    """Return a request of very many values, of great depth, or without its end."""
    count = rng.choice((100, 10_000, 300_000))
    start = b"\x94\x00\x05\xa4push\x92\xa4fuzz"
    kind = rng.randrange(4)
    if kind == 0:
        return start + b"\xdd" + count.to_bytes(4, "big") + rng.choice(_SMALLEST) * rng.choice((count, count // 2))
    if kind == 1:
        return start + rng.choice((b"\x91", b"\x81\xc0", b"\xdc\x00\x01")) * count
    if kind == 2:
        return start + b"\xdb" + count.to_bytes(4, "big") + b"x" * rng.choice((count, 10))
    return b"\x90" * count


def rpc_input(rng: random.Random, token: str | None) -> Input:
    """Return requests on one connection, most of them wrong; after ``auth`` if there is a token."""
    kind = rng.random()
    if kind < 0.05:
        data = rng.randbytes(rng.choice((1, 100, 5000)))
    elif kind < 0.12:
        data = _worst(rng)
    elif kind < 0.15:
        data = rng.choice(INTERESTING)
    else:
        data = b"".join(_packed(rng, _message(rng)) for _ in range(rng.choice((1, 2, 5, 20))))
        if rng.random() < 0.5:
            data = mutated(rng, data)
    if token is not None and rng.random() < 0.6:
        data = _packed(rng, [0, 1, "auth", [token]]) + data
    return cut(rng, data, "rpc")
