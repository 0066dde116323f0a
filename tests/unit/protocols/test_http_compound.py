"""Bodies of compound messages, byte for byte (LMQ specification 5.1 and 5.2)."""

from __future__ import annotations

import re
import secrets

import msgpack
import pytest

from lmqcluster.core.messages.message import Traits
from lmqcluster.node.queues.pulls.deliveries import Delivery, Part
from lmqcluster.protocols.http.lmq.compound import part_headers, render
from lmqcluster.wire.attributes import pack_attributes

ID = b"0fe7f7b1-0c4f-4bd0-8c4b-1f7e3f2d0c11"


def compound(*parts: Part) -> Delivery:
    return Delivery(
        queue=b"q",
        id=ID,
        number=1,
        compound=True,
        retry=2,
        content=b"",
        content_type=None,
        attributes=b"",
        parts=tuple(parts),
        delivery=1,
        sequence=1,
        pushed_s=0.0,
        traits=Traits(),
    )


def boundary_of(content_type: bytes) -> bytes:
    boundary = content_type.removeprefix(b"multipart/mixed; boundary=")
    assert re.fullmatch(rb"[0-9a-f]{32}", boundary)
    return boundary


def test_multipart_layout() -> None:
    delivery = compound(
        Part(b"first", b"text/plain", pack_attributes({"user-agent": "curl", "x-foo": "bar"})),
        Part(b"\r\n\x00", None, b""),
    )
    content_type, pieces = render(delivery, "multipart")
    boundary = boundary_of(content_type)
    assert b"".join(pieces) == (
        b"\r\n--" + boundary + b"\r\n"
        b"content-type: text/plain\r\n"
        b"user-agent: curl\r\n"
        b"x-foo: bar\r\n"
        b"content-transfer-encoding: binary\r\n"
        b"\r\n"
        b"first"
        b"\r\n--" + boundary + b"\r\n"
        b"content-type: application/octet-stream\r\n"
        b"content-transfer-encoding: binary\r\n"
        b"\r\n"
        b"\r\n\x00"
        b"\r\n--" + boundary + b"--\r\n"
    )


def test_msgpack_layout_of_a_short_part_is_minimal() -> None:
    content_type, pieces = render(compound(Part(b"abc", b"text/plain", b"")), "msgpack")
    assert content_type == b"application/x-msgpack"
    assert b"".join(pieces) == b"\x91\x92\x81\xaccontent-type\xaatext/plain\xc4\x03abc"


def test_msgpack_layout_has_str_headers_and_bin_contents() -> None:
    delivery = compound(Part(b"\xff" * 300, None, pack_attributes({"x-foo": b"\xe9"})), Part(b"", b"a/b", b""))
    _type, pieces = render(delivery, "msgpack")
    first, second = msgpack.unpackb(b"".join(pieces), raw=False, unicode_errors="surrogateescape")
    assert first == [{"content-type": "application/octet-stream", "x-foo": "\udce9"}, b"\xff" * 300]
    assert second == [{"content-type": "a/b"}, b""]


def test_stored_control_characters_do_not_start_headers() -> None:
    _type, pieces = render(compound(Part(b"x", b"a/b\r\nevil: 1", b"")), "multipart")
    assert b"content-type: a/b  evil: 1\r\n" in b"".join(pieces)


def test_attributes_that_no_header_can_have_are_left_out() -> None:
    """A producer over another protocol chooses any names and values."""
    odd = {"x-foo": "1\r\nevil: 1", "x-bar": b"\x00", "evil: 1\r\nx": "1", "": "x", "long": "x" * 4097, "x-ok": -1.5}
    part = Part(b"x", None, msgpack.packb(odd))
    _type, pieces = render(compound(part), "multipart")
    assert b"content-type: application/octet-stream\r\nx-ok: -1.5\r\ncontent-transfer-encoding" in b"".join(pieces)


def test_the_head_of_an_answer_is_bounded() -> None:
    """Clients refuse larger ones, and could never get the message."""
    part = Part(b"", None, pack_attributes({f"{number:03}": "x" * 997 for number in range(64)}))
    assert len(list(part_headers(part))) == 17


def test_boundaries_are_unpredictable(monkeypatch: pytest.MonkeyPatch) -> None:
    """They follow neither from the id, nor from a former answer; and none occurs in a part."""
    delivery = compound(Part(b"x", None, b""))
    boundaries = {boundary_of(render(delivery, "multipart")[0]) for _ in range(100)}
    assert len(boundaries) == 100
    draws = iter(["a" * 32, "b" * 32, "c" * 32])
    monkeypatch.setattr(secrets, "token_hex", lambda _size: next(draws))
    forged = b"\r\n--" + b"a" * 32 + b"\r\n\r\nforged\r\n--" + b"b" * 32
    content_type, _pieces = render(compound(Part(b"first", None, b""), Part(forged, None, b"")), "multipart")
    assert boundary_of(content_type) == b"c" * 32


def test_reserved_headers_that_are_stored_already_are_left_out() -> None:
    part = Part(b"x", None, pack_attributes({"X-LMQ-message-id": "forged", "content-encoding": "gzip", "x-foo": 1}))
    _type, pieces = render(compound(part), "multipart")
    assert b"content-type: application/octet-stream\r\nx-foo: 1\r\ncontent-transfer-encoding" in b"".join(pieces)
    _type, pieces = render(compound(part), "msgpack")
    assert msgpack.unpackb(b"".join(pieces)) == [[{"content-type": "application/octet-stream", "x-foo": "1"}, b"x"]]
