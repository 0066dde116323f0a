"""Bodies of compound messages, byte for byte (LMQ specification 5.1 and 5.2)."""

from __future__ import annotations

import msgpack

from lmqcluster.node.service import Delivery, Part
from lmqcluster.protocols.http.compound import render

ID = b"0fe7f7b1-0c4f-4bd0-8c4b-1f7e3f2d0c11"


def compound(*parts: Part) -> Delivery:
    return Delivery(
        queue=b"q", id=ID, compound=True, retry=2, content=b"", content_type=None, headers=(), parts=tuple(parts)
    )


def test_multipart_layout() -> None:
    delivery = compound(
        Part(b"first", b"text/plain", ((b"user-agent", b"curl"), (b"x-foo", b"bar"))), Part(b"\r\n\x00", None, ())
    )
    content_type, pieces = render(delivery, "multipart")
    assert content_type == b"multipart/mixed; boundary=" + ID
    assert b"".join(pieces) == (
        b"\r\n--" + ID + b"\r\n"
        b"content-type: text/plain\r\n"
        b"user-agent: curl\r\n"
        b"x-foo: bar\r\n"
        b"content-transfer-encoding: binary\r\n"
        b"\r\n"
        b"first"
        b"\r\n--" + ID + b"\r\n"
        b"content-type: application/octet-stream\r\n"
        b"content-transfer-encoding: binary\r\n"
        b"\r\n"
        b"\r\n\x00"
        b"\r\n--" + ID + b"--\r\n"
    )


def test_msgpack_layout_of_a_short_part_is_minimal() -> None:
    content_type, pieces = render(compound(Part(b"abc", b"text/plain", ())), "msgpack")
    assert content_type == b"application/x-msgpack"
    assert b"".join(pieces) == b"\x91\x92\x81\xaccontent-type\xaatext/plain\xc4\x03abc"


def test_msgpack_layout_has_str_headers_and_bin_contents() -> None:
    delivery = compound(Part(b"\xff" * 300, None, ((b"x-foo", b"\xe9"),)), Part(b"", b"a/b", ()))
    _type, pieces = render(delivery, "msgpack")
    first, second = msgpack.unpackb(b"".join(pieces), raw=False, unicode_errors="surrogateescape")
    assert first == [{"content-type": "application/octet-stream", "x-foo": "\udce9"}, b"\xff" * 300]
    assert second == [{"content-type": "a/b"}, b""]


def test_stored_control_characters_do_not_start_headers() -> None:
    _type, pieces = render(compound(Part(b"x", b"a/b\r\nevil: 1", ())), "multipart")
    assert b"content-type: a/b  evil: 1\r\n" in b"".join(pieces)
