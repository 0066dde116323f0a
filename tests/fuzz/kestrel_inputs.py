"""Bad input for the ports of Kestrel's clients: lines with wrong arguments, bodies of another size, mutated calls."""

from __future__ import annotations

import random
import struct

from .inputs import INTERESTING, Input, cut, mutated

__all__ = ["memcache_input", "text_input", "thrift_input"]

_QUEUES = (
    b"fuzz",
    b"fuzz+child",
    b"fuzz-other",
    b"fuzz+",
    b"+",
    b"fuzz.x",
    b"~",
    b"",
    b"fuzz\t",
    b"f" * 300,
    b"\xff\xfe",
    b"q q",
)
_NUMBERS = (
    b"0", b"1", b"-1", b"5", b"100", b"2147483647", b"2147483648", b"-2147483649", b"1000000", b"1_0", b"0x10", b"1e9",
    b"", b" ", b"99999999999999999999", b"+3", b"\xd9\xa3",
)  # fmt: skip
_OPTIONS = (
    b"/open", b"/close", b"/abort", b"/peek", b"/t=0", b"/t=20", b"/t=-5", b"/t=", b"/t=x", b"/t=2147483648", b"/", b"/x",
    b"/OPEN",
)  # fmt: skip
_LONG = 70_000
"""More than the maximum length of a line."""


# --- memcache and text ------------------------------------------------------------------------------------------------


def _set(rng: random.Random) -> bytes:
    word = rng.choice((b"set", b"set", b"set", b"SET", b"add", b"cas", b"append"))
    body = rng.randbytes(rng.choice((0, 1, 10, 1000, 200_000)))
    size = b"%d" % len(body) if rng.random() < 0.7 else rng.choice(_NUMBERS)
    flags, expiry = (rng.choice(_NUMBERS) if rng.random() < 0.3 else b"0" for _ in range(2))
    more = rng.choice((b"", b"", b" noreply", b" 7 8 9", b" "))
    end = rng.choice((b"\r\n", b"\r\n", b"\n", b"", b"xx"))
    return b"%b %b %b %b %b%b\r\n%b%b" % (word, rng.choice(_QUEUES), flags, expiry, size, more, body, end)


def _get(rng: random.Random) -> bytes:
    options = b"".join(rng.choices(_OPTIONS, k=rng.choice((0, 1, 1, 2, 3, 40))))
    keys = b"%b%b" % (rng.choice(_QUEUES), options) + rng.choice((b"", b"", b" other", b"  "))
    return rng.choice((b"get ", b"get ", b"gets ", b"GET  ")) + keys + rng.choice((b"\r\n", b"\n"))


def _memcache_line(rng: random.Random) -> bytes:
    # Without flush_all and changes of the status, whose purpose is to affect others.
    word = rng.choice((
        b"delete", b"flush", b"flush_expired", b"flush_all_expired", b"confirm", b"stats", b"dump_stats", b"version", b"status",
        b"reload", b"shutdown", b"quit", b"incr", b"", b" ", b"\x80\x01", b"verbosity",
    ))  # fmt: skip
    words = [] if word == b"status" else rng.choices((*_QUEUES, *_NUMBERS), k=rng.randrange(4))
    return b" ".join([word, *words]) + rng.choice((b"\r\n", b"\n"))


def _monitor(rng: random.Random) -> bytes:
    seconds = rng.choice((b"0", b"1", b"-1", b"x", b"", b"99999999999"))
    return b"monitor %b %b %b\r\n" % (rng.choice(_QUEUES), seconds, rng.choice(_NUMBERS))


def memcache_input(rng: random.Random) -> Input:
    """Return requests, one after the other, or a line without end."""
    if rng.random() < 0.05:
        return cut(rng, rng.choice((b"get ", b"x", b"set fuzz ")) + b"a" * rng.choice((_LONG, 40 * _LONG)), "memcache")
    make = rng.choices((_set, _get, _memcache_line, _monitor), (5, 6, 3, 1), k=rng.choice((1, 1, 2, 5, 50)))
    return _changed(rng, b"".join(one(rng) for one in make), "memcache")


def _text_request(rng: random.Random) -> bytes:
    word = rng.choice(
        (b"put", b"put", b"get", b"peek", b"monitor", b"confirm", b"flush", b"delete", b"version", b"nothing", b"")
    )
    words = b" ".join([word, rng.choice(_QUEUES), *rng.choices(_NUMBERS, k=rng.randrange(3))])
    if word == b"monitor":
        words = b"monitor %b %b" % (rng.choice(_QUEUES), rng.choice((b"0", b"50", b"x", b"")))
    if word == b"put" and rng.random() < 0.8:
        items = [rng.randbytes(rng.choice((0, 1, 20))).replace(b"\n", b"") for _ in range(rng.choice((0, 1, 3, 2000)))]
        return words + b":\n" + b"".join(one + b"\n" for one in items) + rng.choice((b"\n", b"\r\n", b""))
    return words + rng.choice((b"\n", b"\r\n", b":\n"))


def text_input(rng: random.Random) -> Input:
    """Return requests, one after the other, or a line without end."""
    if rng.random() < 0.05:
        return cut(rng, rng.choice((b"put fuzz:\n", b"get ")) + b"a" * rng.choice((_LONG, 40 * _LONG)), "text")
    return _changed(rng, b"".join(_text_request(rng) for _ in range(rng.choice((1, 1, 3, 30)))), "text")


# --- Thrift -----------------------------------------------------------------------------------------------------------


def _string(data: bytes) -> bytes:
    return struct.pack("!i", len(data)) + data


def _field(kind: int, number: int, data: bytes) -> bytes:
    return struct.pack("!bh", kind, number) + data


def _number(rng: random.Random) -> bytes:
    return struct.pack("!i", rng.choice((0, 1, 2, -1, 10, 1000, 2**31 - 1, -(2**31))))


def _ids(rng: random.Random) -> bytes:
    ids = [rng.choice((0, 1, -1, 2**62, rng.getrandbits(62))) for _ in range(rng.choice((0, 1, 5, 300)))]
    count = len(ids) if rng.random() < 0.8 else rng.choice((-1, 2**31 - 1, len(ids) + 1))
    return struct.pack("!bi", 10, count) + b"".join(struct.pack("!q", one) for one in ids)


def _items(rng: random.Random) -> bytes:
    items = [rng.randbytes(rng.choice((0, 3, 500))) for _ in range(rng.choice((0, 1, 3, 400)))]
    count = len(items) if rng.random() < 0.8 else rng.choice((-1, 2**31 - 1, len(items) + 1))
    return struct.pack("!bi", 11, count) + b"".join(map(_string, items))


def _arguments(rng: random.Random, method: bytes) -> bytes:
    queue = _field(11, 1, _string(rng.choice(_QUEUES)))
    if method == b"put":
        return queue + _field(15, 2, _items(rng)) + _field(8, 3, _number(rng))
    if method == b"get":
        # Waits are short, so that senders get their turn.
        wait = struct.pack("!i", rng.choice((0, 0, 20, -1)))
        return queue + _field(8, 2, _number(rng)) + _field(8, 3, wait) + _field(8, 4, _number(rng))
    if method in (b"confirm", b"abort"):
        return queue + _field(14, 2, _ids(rng))
    return b"" if method in (b"current_status", b"get_version") else queue


def _call(rng: random.Random) -> bytes:
    method = rng.choice((
        b"put", b"get", b"confirm", b"abort", b"peek", b"flush_queue", b"delete_queue", b"current_status", b"get_version",
        b"__can__finagle__trace__v3__", b"nothing", b"\xff\xfe",
    ))  # fmt: skip
    arguments = _arguments(rng, method)
    if rng.random() < 0.2:
        hostile = (
            b"\x0c\0\1" * 20_000,
            b"\2\0\x63\1" * 15_000,
            b"\x0f\0\x63\x0f\x7f\xff\xff\xff",
            rng.choice(INTERESTING),
        )
        arguments = rng.choice((rng.choice(hostile), arguments + rng.choice(hostile)))
    version = rng.choice((b"\x80\1\0\1", b"\x80\1\0\1", b"\x80\1\0\1", b"\x80\1\0\2", b"\x80\2\0\1"))
    message = version + _string(method) + _number(rng) + arguments + rng.choice((b"\0", b"\0", b"\0", b""))
    size = len(message) if rng.random() < 0.9 else rng.choice((0, 1, -1, 2**31 - 1, len(message) + 1, 2**26))
    return struct.pack("!i", size) + message


def thrift_input(rng: random.Random) -> Input:
    """Return calls in their frames."""
    return _changed(rng, b"".join(_call(rng) for _ in range(rng.choice((1, 1, 2, 10)))), "thrift")


def _changed(rng: random.Random, data: bytes, port: str) -> Input:
    return cut(rng, mutated(rng, data) if rng.random() < 0.4 else data, port)
