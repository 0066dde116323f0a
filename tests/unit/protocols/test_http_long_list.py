"""Answers with long lists equal those made in one piece, and yield to other work."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack
import pytest

from lmqcluster.node.process.fair_slices import SLICE_ITEMS, FairSlices
from lmqcluster.protocols.http.server.replies.long_list import LongList, reply_with_list
from lmqcluster.protocols.http.v1.bodies.media import Media


def row(number: int) -> dict[str, Any]:
    return {"name": f"ü-{number}", "none": None, "share": number / 3}


@pytest.mark.parametrize("count", [0, 1, 500, 501, 1700])
@pytest.mark.parametrize("is_msgpack", [False, True])
def test_a_long_list_is_encoded_as_a_short_one(count: int, is_msgpack: bool) -> None:
    media = Media(is_msgpack)
    rest = {"total": 7, "next": None, "more": [1, "zwei"]}
    expected = media.reply({"rows": [row(number) for number in range(count)], **rest})
    reply = asyncio.run(reply_with_list(media, LongList("rows", range(count), row, rest), FairSlices(), b"c"))
    assert (reply.code, reply.head) == (expected.code, expected.head)
    if is_msgpack:
        assert msgpack.unpackb(reply.content) == msgpack.unpackb(expected.content)
    else:
        assert reply.content == expected.content


def test_other_work_gets_turns() -> None:
    turns = FairSlices()
    asyncio.run(reply_with_list(Media(False), LongList("rows", range(5_000), row), turns, b"c"))
    assert turns.given_total >= 5_000 // SLICE_ITEMS
