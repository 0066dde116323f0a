"""Responses byte for byte: MessagePack's old specification, in its shortest form."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from lmqcluster.core.messages.message import Message, Part
from lmqcluster.protocols.msgpack_rpc.values import replies
from lmqcluster.wire.ids import ReceiptFormat
from lmqcluster.wire.legacy_msgpack import CONTENT_TYPE, pack, pack_raw

RECEIPTS = ReceiptFormat(bytes(range(10)))
ENCODER = replies.DeliveryEncoder(RECEIPTS, typed=False)


def encode(content: Any, content_type: bytes | None = CONTENT_TYPE, remaining: int = 2) -> bytes:
    """Return the map of a delivery, number 255 of queue ``q``."""
    message = Message(1, 0, 3, (content_type, b""), content)
    return ENCODER.encode((b"q", 255, remaining, message))


HEAD = b"\x85\xa5queue\xa1q\xa2id\xda\x00\x24" + RECEIPTS.format(255)


@pytest.mark.parametrize("msgid", [0, 127, 128, 2**32, 2**64 - 1, -1, None, "i" * 40, [1]], ids=repr)
def test_success_and_failure(msgid: object) -> None:
    assert replies.success(msgid, replies.OK) == b"\x94\x01" + pack(msgid) + b"\xc0\xa2ok"
    assert replies.failure(msgid, "undef") == b"\x94\x01" + pack(msgid) + b"\xa5undef\xc0"


def test_long_error_is_raw16() -> None:
    assert replies.failure(1, "x" * 40) == b"\x94\x01\x01\xda\x00\x28" + b"x" * 40 + b"\xc0"


@pytest.mark.parametrize("count", [0, 15, 16, 65535, 65536])
def test_array_header(count: int) -> None:
    assert replies.array_header(count) == msgpack.Packer().pack_array_header(count)


def test_message_has_its_keys_in_order() -> None:
    assert encode(b"\xa4text") == HEAD + b"\xa4type\xa6normal\xa5retry\x02\xa7content\xa4text"


@pytest.mark.parametrize("remaining", [0, 1, 127, 128, 2**40])
def test_retry_is_a_short_integer(remaining: int) -> None:
    assert encode(b"\x01", remaining=remaining) == (
        HEAD + b"\xa4type\xa6normal\xa5retry" + pack(remaining) + b"\xa7content\x01"
    )


def test_package_is_an_array_of_the_parts_values() -> None:
    parts = [
        Part(CONTENT_TYPE, b"", b"\xa1a"),
        Part(b"text/plain", b"", b"b"),
        Part(None, b"", b"\x01"),
        Part(CONTENT_TYPE, b"", b"\xc1"),
    ]
    assert encode(parts) == HEAD + b"\xa4type\xa7package\xa5retry\x02\xa7content\x94\xa1a\xa1b\xa1\x01\xa1\xc1"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"\x05", b"\x05"),
        (b"\xc0", b"\xc0"),
        (pack_raw(b"x" * 31), pack_raw(b"x" * 31)),
        (pack_raw(b"x" * 32), pack_raw(b"x" * 32)),
        (pack_raw(b"x" * 70000), pack_raw(b"x" * 70000)),
        (b"\xd9\x03abc", b"\xa3abc"),
        (b"\xc4\x03abc", b"\xa3abc"),
        (b"\xda\x00\x01a", b"\xa1a"),
        (b"\xdb\x00\x00\x00\x01a", b"\xa1a"),
        (b"\xdb\x00\x00\x00\x28" + b"a" * 40, b"\xda\x00\x28" + b"a" * 40),
        (b"\xca\x3f\x00\x00\x00", b"\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"),
        (b"\x92\xd9\x01a\x81\xc4\x01k\xc0", b"\x92\xa1a\x81\xa1k\xc0"),
        # Bodies that do not decode are returned unchanged.
        (b"", b"\xa0"),
        (b"\xc1", b"\xa1\xc1"),
        (b"\xa3ab", b"\xa3\xa3ab"),
        (b"\xa1ab", b"\xa3\xa1ab"),
        (b"\xda\x00\x05ab", b"\xa5\xda\x00\x05ab"),
        (b"\x01\x02", b"\xa2\x01\x02"),
        (b"\xd4\x05x", b"\xa3\xd4\x05x"),
        (b"\xd6\xff\x00\x00\x00\x01", b"\xa6\xd6\xff\x00\x00\x00\x01"),
        (b"\x91\xd6\xff\x00\x00\x00\x01", b"\xa7\x91\xd6\xff\x00\x00\x00\x01"),
        (b"\x81\x91\x01\x02", b"\xa4\x81\x91\x01\x02"),
    ],
    ids=lambda value: repr(value)[:16],
)
def test_bodies_typed_as_messagepack(body: bytes, value: bytes) -> None:
    assert replies.encode_content(CONTENT_TYPE, body) == value
    assert encode(body).endswith(b"\xa7content" + value)


@pytest.mark.parametrize(
    "content_type", [None, b"", b"text/plain", b"application/x-msgpack;x", b"APPLICATION/X-MSGPACK"]
)
def test_bodies_of_any_other_type_are_returned_unchanged(content_type: bytes | None) -> None:
    assert encode(b"\x05", content_type).endswith(b"\xa7content\xa1\x05")


@pytest.mark.parametrize("content_type", [None, b"text/plain", CONTENT_TYPE])
def test_typed_messages_have_a_sixth_key_unless_the_type_is_the_usual_one(content_type: bytes | None) -> None:
    message = Message(1, 0, 3, (content_type, b""), b"\xa1a")
    typed = msgpack.unpackb(replies.DeliveryEncoder(RECEIPTS, typed=True).encode((b"q", 255, 2, message)), raw=True)
    sixth = [] if content_type == CONTENT_TYPE else [b"content_type"]
    assert list(typed) == [b"queue", b"id", b"type", b"retry", b"content", *sixth]
    assert typed.get(b"content_type", CONTENT_TYPE) == content_type


@pytest.mark.parametrize("packed", [(b"",), (b"A",), (b"", b"B"), (b"A", b"", b"C"), (b"A",) * 20], ids=repr)
def test_typed_packages_have_the_attributes_of_each_part_if_any_has_some(packed: tuple[bytes, ...]) -> None:
    parts = [Part(None, attributes, b"body") for attributes in packed]
    message = Message(1, 0, 3, (None, b""), parts)
    typed = msgpack.unpackb(replies.DeliveryEncoder(RECEIPTS, typed=True).encode((b"q", 255, 2, message)), raw=True)
    assert typed.get(b"attributes", []) == (list(packed) if any(packed) else [])
    assert typed[b"content"] == [b"body"] * len(packed)


def test_heads_of_many_queues_do_not_fill_memory() -> None:
    encoder = replies.DeliveryEncoder(RECEIPTS, typed=False)
    message = Message(1, 0, 3, (CONTENT_TYPE, b""), b"\x01")
    for number in range(10_000):
        name = b"queue-%d" % number
        assert msgpack.unpackb(encoder.encode((name, 1, 2, message)), raw=True)[b"queue"] == name
    assert len(encoder._heads) <= 4096
