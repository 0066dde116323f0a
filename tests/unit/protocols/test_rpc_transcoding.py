"""Large bodies are converted to the old specification in slices, with the result of decoding and encoding."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgpack
import pytest

from lmqcluster.core.messages.message import Message
from lmqcluster.protocols.msgpack_rpc.values.replies import DeliveryEncoder, LargeBodyError, encode_content
from lmqcluster.protocols.msgpack_rpc.values.transcoding import DECODED_BYTES_MAX, SLICE_VALUES, Transcoder, old_form
from lmqcluster.wire.ids import ReceiptFormat
from lmqcluster.wire.legacy_msgpack import CONTENT_TYPE, pack, pack_raw, unpack

RECEIPTS = ReceiptFormat(bytes(range(10)))


def whole(body: bytes) -> bytes | None:
    """Return the old form, with all slices at once."""
    work = old_form(body)
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: bytes | None = done.value
            return result


def any_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 4 else 7)
    if kind < 7:
        sizes = (0, 1, 31, 32, 255, 256, 70_000)
        text = "x" * rng.choice(sizes)
        return rng.choice((None, True, 0, -1, 127, 128, 2**16, 2**63, -(2**40), 0.5, text, text.encode()))
    if kind == 7:
        return [any_value(rng, depth + 1) for _ in range(rng.choice((0, 1, 15, 16, 40)))]
    return {rng.choice(("a", b"b", 7, None, "k" * 40)): any_value(rng, depth + 1) for _ in range(rng.randrange(5))}


@pytest.mark.parametrize("use_bin_type", [False, True])
def test_values_are_those_that_decoding_and_encoding_gives(use_bin_type: bool) -> None:
    rng = random.Random(5)
    for _ in range(300):
        body = msgpack.packb(any_value(rng), use_bin_type=use_bin_type)
        assert whole(body) == encode_content(CONTENT_TYPE, body)


def test_invalid_values_are_refused_alike() -> None:
    rng = random.Random(6)
    refused = 0
    for _ in range(3000):
        body = bytearray(msgpack.packb(any_value(rng, 2), use_bin_type=True)[:2000])
        for _ in range(rng.randrange(3)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        found = whole(bytes(body))
        plain = encode_content(CONTENT_TYPE, bytes(body))
        if found is None:
            refused += 1
            assert plain == pack_raw(bytes(body))
        else:
            assert same(unpack(found), unpack(plain))
    assert refused > 500


def same(one: Any, other: Any) -> bool:
    """Return whether both are equal, a NaN to itself too, which a map with repeated keys need not be."""
    return repr(one) == repr(other) or pack(one) == pack(other)


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x91", b"\x90\x90", b"\x81\x90\x01", b"\x91" * 600 + b"\xc0"], ids=repr
)
def test_refused(body: bytes) -> None:
    assert whole(body) is None


def test_a_large_body_takes_as_many_turns_as_it_has_slices() -> None:
    values = 50 * SLICE_VALUES
    body = b"\xdd" + values.to_bytes(4, "big") + b"\x90" * values
    delivered = (b"q", 1, 2, Message(1, 0, 3, (CONTENT_TYPE, b""), body))

    async def main() -> None:
        transcoder = Transcoder()
        encoder = DeliveryEncoder(RECEIPTS, typed=False, transcoder=transcoder)
        with pytest.raises(LargeBodyError):
            encoder.encode(delivered)
        turns, done = 0, False

        async def others() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        two = await asyncio.gather(encoder.encode_in_turns(delivered), encoder.encode_in_turns(delivered))
        done = True
        await beside
        assert two[0] == two[1] == DeliveryEncoder(RECEIPTS, typed=False).encode(delivered)
        # Two slices never share a turn, although two bodies were in progress.
        assert 100 <= transcoder.slices <= turns + 2

    asyncio.run(main())


def test_small_bodies_share_the_slice_of_a_turn() -> None:
    body = pack([1] * (DECODED_BYTES_MAX // 4))
    delivered = (b"q", 1, 2, Message(1, 0, 3, (CONTENT_TYPE, b""), body))

    async def main() -> None:
        encoder = DeliveryEncoder(RECEIPTS, typed=False, transcoder=Transcoder())
        for _ in range(3):
            encoder.encode(delivered)
        with pytest.raises(LargeBodyError):
            encoder.encode(delivered)
        assert await encoder.encode_in_turns(delivered) == encoder.encode(delivered)

    asyncio.run(main())
