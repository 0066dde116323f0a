"""Responses as bytes: ``[1, msgid, error, result]`` in old-specification MessagePack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgpack

from ....core.log.results import Delivered
from ....core.messages.message import Message, Part, loaded, traits_of
from ....wire.errors import LmqError
from ....wire.ids import ReceiptFormat
from ....wire.legacy_msgpack import CONTENT_TYPE, pack, pack_raw, raw_head, unpack
from ....wire.values import VALUES_MAX, Scan, TooManyValuesError
from .transcoding import DECODED_BYTES_MAX, Transcoder

__all__ = [
    "BEGINNING",
    "EMPTY",
    "FLAG_TEXTS",
    "OK",
    "DeliveryEncoder",
    "LargeBodyError",
    "all_ok",
    "array_header",
    "encode_content",
    "failure",
    "is_string",
    "success",
]

OK = pack_raw(b"ok")
EMPTY = pack_raw(b"empty")
FLAG_TEXTS = (OK, pack_raw(b"packing started"), pack_raw(b"packed"))

BEGINNING = _HEAD = b"\x94\x01"
"""First bytes of every response."""
_OK_END = b"\xc0" + OK
_BETWEEN_OKS = _OK_END + _HEAD
_pack_msgid: Callable[[object], bytes] = msgpack.Packer(use_bin_type=False).pack
_CONTENT = b"\xa7content"
_NORMAL_TAILS = [b"\xa4type\xa6normal\xa5retry" + bytes((retry,)) + _CONTENT for retry in range(128)]
_PACKAGE_TAILS = [b"\xa4type\xa7package\xa5retry" + bytes((retry,)) + _CONTENT for retry in range(128)]
_HEADS_MAX = 4096
_RAW_ID = b"\xa2id\xda\x00\x24"
_MAP_QUEUE = b"\x85\xa5queue"
_MAP_OF_SIX = b"\x86"
_DELIVERY_KEY = b"\xa8delivery"
_PUSHED_AT_KEY = b"\xa9pushed_at"
_CONTENT_TYPE_KEY = b"\xaccontent_type"
_ATTRIBUTES_KEY = b"\xaaattributes"
_NOTHING: list[bytes] = []


def success(msgid: object, result: bytes) -> bytes:
    """Return a response with an encoded result."""
    return b"".join((_HEAD, _pack_msgid(msgid), b"\xc0", result))


def all_ok(msgids: list[object]) -> bytes:
    """Return at least one response with the result ``ok``. This is the fast path of nearly every push and done."""
    return _HEAD + _BETWEEN_OKS.join(map(_pack_msgid, msgids)) + _OK_END


def failure(msgid: object, text: str) -> bytes:
    """Return a response with an error text."""
    return _HEAD + pack(msgid) + pack_raw(text.encode()) + b"\xc0"


def array_header(count: int) -> bytes:
    """Return the start of an array of `count` elements."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 65536 else b"\xdd" + count.to_bytes(4, "big")


class LargeBodyError(Exception):
    """Bodies that are too large to be decoded in this turn of the event loop."""


class DeliveryEncoder:
    """Encoder of messages as maps with the keys queue, id, type, retry, content, in this order.

    The bytes up to the number in the id are the same for all messages of a queue, so they are cached.

    Args:
        receipts: the format of ids.
        typed: whether to add keys that LMQ's clients do not know: ``content_type`` to a normal message whose type
            differs from that of pushes over MessagePack-RPC, nil if it has none; its attributes, if it has any, and
            for a compound message those of each part; and to a redelivered message or one with traits, its delivery
            number, its push time and its traits.
        transcoder: limits the decoding per turn; None for no limit.
        unix_us: returns the Unix time of a log time.
    """

    __slots__ = ("_heads", "_transcoder", "_typed", "_unix_us", "receipts")

    def __init__(
        self,
        receipts: ReceiptFormat,
        *,
        typed: bool,
        transcoder: Transcoder | None = None,
        unix_us: Callable[[int], int] = lambda log_us: log_us,
    ) -> None:
        self.receipts = receipts
        self._unix_us = unix_us
        self._transcoder = transcoder
        self._typed = typed
        self._heads: dict[bytes, bytes] = {}

    def encode(self, delivered: Delivered, contents: Sequence[bytes] | None = None) -> bytes:
        """Encode one message. `contents` holds its bodies if they were already converted to values.

        Raises:
            LargeBodyError: the bodies are too large to be decoded now; use `encode_in_turns`.
        """
        name, number, remaining, message = delivered
        head = self._heads.get(name) or self._make_head(name)
        body = message.content
        # The bytes around a body are kept apart, so that a large body is copied only once.
        lead, rest = b"", _NOTHING
        parts: list[Part] = []
        if not isinstance(body, bytes):
            body = loaded(body)
        if isinstance(body, bytes):
            if message.meta[0] != CONTENT_TYPE:
                lead = raw_head(len(body))
                if self._typed:
                    head = _MAP_OF_SIX + head[1:]
                    rest = [_CONTENT_TYPE_KEY, pack(message.meta[0])]
            elif not (len(body) > 34 and body[0] == 0xDA and (body[1] << 8 | body[2]) == len(body) - 3):
                body = contents[0] if contents is not None else self._value(CONTENT_TYPE, body)
            kinds = _NORMAL_TAILS
        else:
            parts = body if any(part.attributes for part in body) else []
            if contents is None:
                contents = [self._value(part.content_type, part.content) for part in body]
            body = array_header(len(contents)) + b"".join(contents)
            kinds = _PACKAGE_TAILS
        if self._typed and (message.delivered > 1 or message.meta[1] or type(message) is not Message or parts):
            traits = self._traits(message, parts)
            head = bytes((head[0] + len(traits) // 2,)) + head[1:]
            rest = [*rest, *traits]
        tail = kinds[remaining] if remaining < 128 else kinds[0][:-9] + pack(remaining) + _CONTENT
        if lead or rest:
            return b"".join((head, b"%012x" % number, tail, lead, body, *rest))
        return b"".join((head, b"%012x" % number, tail, body))

    def _traits(self, message: Message, parts: list[Part]) -> list[bytes]:
        """Return keys and values of a message's traits and attributes."""
        traits = traits_of(message)
        pushed_us = self._unix_us(message.pushed_us)
        found = [_DELIVERY_KEY, pack(message.delivered), _PUSHED_AT_KEY, pack(pushed_us / 1e6)]
        if message.meta[1]:
            found += [_ATTRIBUTES_KEY, pack_raw(message.meta[1])]
        elif parts:
            each = b"".join(pack_raw(part.attributes) for part in parts)
            found += [_ATTRIBUTES_KEY, array_header(len(parts)) + each]
        if traits.priority:
            found += [pack("priority"), pack(traits.priority)]
        if traits.label:
            found += [pack("label"), pack_raw(traits.label)]
        if traits.group:
            found += [pack("group"), pack_raw(traits.group)]
        if traits.origin is not None:
            queue, reason, _at_us, deliveries, sequence, *_ = traits.origin
            origin = {"queue": queue, "reason": reason, "deliveries": deliveries, "sequence": sequence}
            found += [pack("origin"), pack(origin)]
        return found

    def _value(self, content_type: bytes | None, body: bytes) -> bytes:
        transcoder = self._transcoder
        is_decoded = content_type == CONTENT_TYPE and not is_string(body)
        if transcoder is not None and is_decoded and not transcoder.take(len(body)):
            raise LargeBodyError
        return encode_content(content_type, body)

    async def encode_in_turns(self, delivered: Delivered) -> bytes:
        """Encode one message of any size. Other work of the node continues between the slices."""
        content = loaded(delivered[3].content)
        parts = (
            [(delivered[3].meta[0], content)]
            if isinstance(content, bytes)
            else [(p.content_type, p.content) for p in content]
        )
        return self.encode(delivered, [await self._value_in_turns(*part) for part in parts])

    async def _value_in_turns(self, content_type: bytes | None, body: bytes) -> bytes:
        if self._transcoder is None or content_type != CONTENT_TYPE or is_string(body):
            return encode_content(content_type, body)
        if len(body) > DECODED_BYTES_MAX:
            value = await self._transcoder.old_form(body)
            return pack_raw(body) if value is None else value
        while not self._transcoder.take(len(body)):  # noqa: ASYNC110  every turn of the event loop allows more
            await asyncio.sleep(0)
        return encode_content(content_type, body)

    def _make_head(self, name: bytes) -> bytes:
        if len(self._heads) >= _HEADS_MAX:
            self._heads.clear()
        head = self._heads[name] = _MAP_QUEUE + pack_raw(name) + _RAW_ID + self.receipts.prefix
        return head


def encode_content(content_type: bytes | None, body: bytes) -> bytes:
    """Return a body as a value: decoded if it has the MessagePack type and is valid, otherwise as a string."""
    if content_type != CONTENT_TYPE:
        return pack_raw(body)
    if is_string(body):
        return body
    try:
        # A body that would take very much memory as values is sent as a string.
        if len(body) > VALUES_MAX:
            Scan().feed(body)
        return pack(unpack(body))
    except (TooManyValuesError, ValueError, LmqError):
        return pack_raw(body)


def is_string(body: bytes) -> bool:
    """Return whether the body is exactly one old-specification string in its shortest form."""
    if not body:
        return False
    first = body[0]
    if first & 0xE0 == 0xA0:
        return len(body) == 1 + (first & 0x1F)
    if first == 0xDA:
        return len(body) >= 35 and int.from_bytes(body[1:3], "big") == len(body) - 3
    return first == 0xDB and len(body) >= 65541 and int.from_bytes(body[1:5], "big") == len(body) - 5
