"""Attributes over MessagePack-RPC: malformed ones are refused by every method that stores messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cluster import NodeProcess
from .raw_rpc import Rpc


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as rpc:
        yield rpc


BAD_ATTRIBUTES = [
    *(7, [], {}, "", "x", b"\xc1", b"\x90", b"\x81\xa1a\xc3", b"\x81\xa1a\x90", b"\x81\x01\x01", b"\x81\xa0\x01"),
    *(
        b"\x81\xa1a",
        b"\x81\xa1a\x01\x01",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdb\xff\xff\xff\xff",
        b"\x81\xa1\xff\x01",
    ),
    *(b"\x81\xa1a\xc7\x01\x05x", b"\x81\xa1a\xcf" + b"\xff" * 8, b"\x81\xa1a\xcb\x7f\xf0" + bytes(6), bytes(20_000)),
]
"""Values that are no packed map of names to values."""


@pytest.mark.parametrize("attributes", BAD_ATTRIBUTES)
def test_malformed_attributes_are_refused(rpc: Rpc, queue_name: str, attributes: object) -> None:
    for method, arguments in (
        ("push", [queue_name, "x", {"attributes": attributes}]),
        ("push_many", [queue_name, ["x"], {"options": [{"attributes": attributes}]}]),
        ("transaction", [[["push", queue_name, "x", {"attributes": attributes}]]]),
        (
            "push_marked",
            [queue_name, ["x"], {"job": "j", "stream": "s", "first": 0, "options": [{"attributes": attributes}]}],
        ),
    ):
        # The first is LMQ's error for arguments of a wrong type.
        assert rpc.error(method, *arguments).startswith((b"function_clause", b"bad_request", b"too_large")), method
    assert rpc.call("pull", queue_name, 0) == b"empty"
