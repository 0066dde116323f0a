"""Bodies of very many small values are refused before they are built; contents are unrestricted."""

from __future__ import annotations

import asyncio
import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.protocols.http.server.requests import values
from lmqcluster.protocols.http.server.requests.values import VALUES_MAX, WINDOW_BYTES, check_json, check_msgpack
from lmqcluster.wire.errors import LmqError


@pytest.mark.parametrize("item", [b"[]", b"{}", b"0", b'""', b'"\\\\"'])
def test_json_of_too_many_values(item: bytes) -> None:
    with pytest.raises(LmqError, match="at most"):
        asyncio.run(check_json(b'{"messages":[' + b",".join([item] * (VALUES_MAX + 1)) + b"]}"))


@pytest.mark.parametrize("size", range(4))
def test_separators_within_strings_are_not_values(size: int) -> None:
    content = ",:[{" + "\\" * size + '"' * size + ",:[{" * VALUES_MAX
    asyncio.run(check_json(json.dumps({"messages": [{"content": content}]}).encode()))
    asyncio.run(check_json(b'"' + b"\\\\" * WINDOW_BYTES + b"," * VALUES_MAX * 2 + b'"'))


@pytest.mark.parametrize("data", [b"\x80", b"\x90", b"\xc0", b"\x81\x00\x00"])
def test_msgpack_of_too_many_values(data: bytes) -> None:
    with pytest.raises(LmqError, match="at most"):
        asyncio.run(check_msgpack(b"\xdd" + (1 << 23).to_bytes(4, "big") + data * (1 << 23)))


def test_the_largest_batch_fits() -> None:
    batch = {"messages": [{"content": "c", "content_type": "t", "key": str(number)} for number in range(10_000)]}
    asyncio.run(check_json(json.dumps(batch).encode()))
    asyncio.run(check_msgpack(msgpack.packb(batch)))


@given(st.text('\\"a', max_size=40), st.integers(0, 8))
def test_strings_end_where_they_end(content: str, shift: int) -> None:
    """Wherever a window ends: every comma after the string counts, and none within."""
    padding = "x" * (WINDOW_BYTES - len('["",') - shift)
    body = json.dumps([padding, content + ",", *[0] * 3]).encode()
    with pytest.MonkeyPatch.context() as patch:
        # Commas between the values, and the bracket.
        patch.setattr(values, "VALUES_MAX", 5)
        asyncio.run(check_json(body))
        patch.setattr(values, "VALUES_MAX", 4)
        with pytest.raises(LmqError):
            asyncio.run(check_json(body))


def test_a_body_of_backslashes_is_scanned_in_windows() -> None:
    body = b'"' + b"\\" * (64 * WINDOW_BYTES) + b'"'
    work = check_json(body)
    for _ in range(64):
        work.send(None)
    work.close()
