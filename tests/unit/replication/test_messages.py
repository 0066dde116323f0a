"""Frames between peers: a closed set of layouts, each field of exactly one type."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from lmqcluster.replication.peers import messages
from lmqcluster.replication.peers.messages import FrameError
from lmqcluster.replication.storage.journal.journal import Entry

EVERY: list[dict[str, Any]] = [
    {
        "type": "append_entries",
        "term": 3,
        "seq": 9,
        "commit_index": 5,
        "prevLogIdx": 4,
        "prevLogTerm": 2,
        "last": 7,
        "entries": [[b"\x00command", 5, 3], [b"\x01", 6, 3]],
    },
    {"type": "append_reply", "term": 3, "seq": 9, "success": True, "match": 6, "hint": 0, "counts": True},
    {"type": "request_vote", "term": 4, "last_log_index": 6, "last_log_term": 3},
    {"type": "response_vote", "term": 4},
    {"type": "timeout_now", "term": 4},
    {
        "type": "snapshot",
        "term": 4,
        "seq": 10,
        "index": 6,
        "index_term": 3,
        "number": 0,
        "count": 2,
        "last": 7,
        "data": b"block",
    },
    {
        "type": "snapshot_reply",
        "term": 4,
        "seq": 10,
        "index": 6,
        "number": 0,
        "installed": False,
        "restart": True,
    },
    {"type": "propose", "sequence": 12, "batch": b"batch"},
    {"type": "not_leader", "sequence": 12},
    {
        "type": "about",
        "name": "n1",
        "http": "a:1",
        "rpc": "",
        "raft": "a:2",
        "empty": True,
        "recovering": False,
        "machine_version": 1,
        "members": b"m" * 16,
    },
    {"type": "ask", "verb": "cluster", "arguments": []},
    {"type": "answer", "ok": True, "result": {"id": "n1"}},
    {"type": "answer", "ok": False, "result": "no"},
    {"type": "pre_vote", "term": 3, "round": 1, "last_log_index": 6, "last_log_term": 3},
    {"type": "pre_vote_reply", "term": 3, "round": 1, "granted": True, "stranger": False},
    {"type": "where", "round": 2},
    {"type": "here", "round": 2, "last": 70, "members": b"m" * 16},
    {"type": "page_request", "page": b"p" * 16, "low": -4},
    {"type": "page", "page": b"p" * 16, "data": b"page"},
    {"type": "snapshot_request", "applied": 6},
    {"type": "part", "data": b"piece"},
    {"type": "whole", "message": b"x"},
]
WRONG_VALUES: list[Any] = [None, True, 1, 1.5, "text", b"bytes", [1], {"k": 1}]


def ident(message: dict[str, Any]) -> str:
    return message["type"]


@pytest.mark.parametrize("message", EVERY, ids=ident)
def test_every_message_survives_the_wire(message: dict[str, Any]) -> None:
    assert messages.decode(messages.encode(message)) == message
    assert messages.decode(memoryview(messages.encode(message))) == message


def test_entries_of_the_journal_can_be_sent_unchanged() -> None:
    entries = [Entry(b"\x00c", 2, 1), Entry(b"\x01", 3, 1)]
    sent = messages.encode({**EVERY[0], "entries": entries})
    assert messages.decode(sent)["entries"] == [list(entry) for entry in entries]


def test_frame_is_a_length_and_the_payload() -> None:
    assert messages.frame(b"abc") == b"\x00\x00\x00\x03abc"


@pytest.mark.parametrize("message", EVERY, ids=ident)
def test_each_field_accepts_only_its_type(message: dict[str, Any]) -> None:
    """A bool does not count as an integer here, nor a string as bytes; the error names the field."""
    fields = msgpack.unpackb(messages.encode(message))
    names = list(message)
    for position in range(1, len(fields)):
        right = type(fields[position])
        for wrong in WRONG_VALUES:
            if type(wrong) is right or (message["type"] == "answer" and type(wrong) in (dict, str)):
                continue
            changed = [*fields]
            changed[position] = wrong
            with pytest.raises(
                FrameError, match=f"{names[position]} of a {message['type']} message has the wrong type"
            ):
                messages.decode(msgpack.packb(changed))


@pytest.mark.parametrize("message", EVERY, ids=ident)
def test_missing_and_additional_fields_are_refused(message: dict[str, Any]) -> None:
    fields = msgpack.unpackb(messages.encode(message))
    for wrong in (fields[:-1], [*fields, 1]):
        with pytest.raises(FrameError, match=f"a {message['type']} message has {len(fields) - 1} fields"):
            messages.decode(msgpack.packb(wrong))


@pytest.mark.parametrize("kind", [0, 24, -1, 255, True, 1.0, "1", b"\x01", None, [1]], ids=repr)
def test_unknown_kinds_are_refused(kind: object) -> None:
    with pytest.raises(FrameError, match="not a message of a known kind"):
        messages.decode(msgpack.packb([kind, 1]))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x92\x04",
        b"\x92\x04\x01\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 3000,
        b"\x92\x04\xa1\xff",
        b"\x92\x0b\x81\x91\x01\x02",
    ],
    ids=lambda value: repr(value)[:16],
)
def test_anything_but_one_messagepack_value_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError, match="not MessagePack"):
        messages.decode(payload)


@pytest.mark.parametrize("payload", [b"\x80", b"\x01", b"\xa1x", b"\x90"])
def test_anything_but_an_array_with_a_kind_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError, match="known kind"):
        messages.decode(payload)


@pytest.mark.parametrize(
    "entry",
    [
        b"command",
        [],
        [b"c", 1],
        [b"c", 1, 1, 1],
        ["c", 1, 1],
        [b"", 1, 1],
        [b"c", "1", 1],
        [b"c", 1, None],
        [b"c", True, 1],
    ],
    ids=repr,
)
def test_entries_must_be_command_index_term(entry: object) -> None:
    payload = messages.encode({**EVERY[0], "entries": [[b"\x01", 5, 3], entry]})
    with pytest.raises(FrameError, match="an entry must be"):
        messages.decode(payload)


LARGE = bytes(range(256)) * (messages.BULK_BYTES // 256) + b"more"
IN_PIECES: list[dict[str, Any]] = [
    {"type": "propose", "sequence": 7, "batch": LARGE},
    {"type": "page", "page": b"name", "data": LARGE},
    {
        "type": "append_entries",
        "term": 3,
        "seq": 9,
        "commit_index": 4,
        "prevLogIdx": 4,
        "prevLogTerm": 2,
        "last": 5,
        "entries": [[LARGE, 5, 3]],
    },
]


@pytest.mark.parametrize("message", IN_PIECES, ids=ident)
def test_a_large_field_can_be_removed_from_a_message_and_restored(message: dict[str, Any]) -> None:
    before = dict(message)
    assert messages.bulk_of(message) is LARGE
    whole = messages.decode(messages.envelope(message))
    assert message == before
    assert len(whole["message"]) < 100
    assert messages.decode(whole["message"], LARGE) == messages.decode(messages.encode(message))


def test_a_small_or_repeated_field_stays_in_its_message() -> None:
    append = IN_PIECES[2]
    assert messages.bulk_of({**append, "entries": []}) is None
    assert messages.bulk_of({**append, "entries": [[LARGE, 5, 3], [b"x", 6, 3]]}) is None
    assert messages.bulk_of({"type": "propose", "sequence": 7, "batch": LARGE[: messages.BULK_BYTES]}) is None
    assert all(messages.bulk_of(message) is None for message in EVERY)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "timeout_now", "term": 3},
        {"type": "whole", "message": b"x"},
        {**IN_PIECES[2], "entries": []},
    ],
    ids=ident,
)
def test_pieces_without_a_place_in_their_message_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(FrameError, match="has no place for what came in pieces"):
        messages.decode(messages.encode(message), LARGE)
