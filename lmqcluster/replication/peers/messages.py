"""Frames between peers: a closed set of MessagePack layouts, checked field by field when read.

A frame is a 4-byte big-endian length and an array ``[kind, field, ...]``. Nothing else is ever decoded, so a peer can
make us store only integers, strings, byte strings and lists of them.
"""

from __future__ import annotations

from typing import Any

import msgpack

__all__ = ["AFTER_SYNC", "BULK_BYTES", "FrameError", "bulk_of", "decode", "encode", "envelope", "frame"]

_Layout = tuple[tuple[str, type | tuple[type, ...]], ...]

# Kind and fields in wire order. The types are exact: a bool is not an int here.
_LAYOUTS: dict[str, tuple[int, _Layout]] = {
    "append_entries": (
        1,
        (
            ("term", int),
            ("seq", int),
            ("commit_index", int),
            ("prevLogIdx", int),
            ("prevLogTerm", int),
            ("last", int),
            ("entries", list),
        ),
    ),
    "append_reply": (
        2,
        (("term", int), ("seq", int), ("success", bool), ("match", int), ("hint", int), ("counts", bool)),
    ),
    "request_vote": (3, (("term", int), ("last_log_index", int), ("last_log_term", int))),
    "response_vote": (4, (("term", int),)),
    "timeout_now": (5, (("term", int),)),
    "snapshot": (
        6,
        (
            ("term", int),
            ("seq", int),
            ("index", int),
            ("index_term", int),
            ("number", int),
            ("count", int),
            ("last", int),
            ("data", bytes),
        ),
    ),
    "snapshot_reply": (
        7,
        (("term", int), ("seq", int), ("index", int), ("number", int), ("installed", bool), ("restart", bool)),
    ),
    # A batch sent to the leader, and its refusal by a node that does not lead.
    "propose": (8, (("sequence", int), ("batch", bytes))),
    "not_leader": (9, (("sequence", int),)),
    # A node's description of itself for its peers.
    "about": (
        10,
        (
            ("name", str),
            ("http", str),
            ("rpc", str),
            ("raft", str),
            ("empty", bool),
            ("recovering", bool),
            ("machine_version", int),
            ("members", bytes),
        ),
    ),
    # One administrative question, on a separate connection.
    "ask": (11, (("verb", str), ("arguments", list))),
    "answer": (12, (("ok", bool), ("result", (dict, str)))),
    "pre_vote": (13, (("term", int), ("round", int), ("last_log_index", int), ("last_log_term", int))),
    # The index up to which logs reach.
    "where": (15, (("round", int),)),
    "here": (16, (("round", int), ("last", int), ("members", bytes))),
    # Pages that a snapshot names; a missing page has no data. The lowest sequence identifies the messages of the
    # page.
    "page_request": (17, (("page", bytes), ("low", int))),
    "page": (18, (("page", bytes), ("data", bytes))),
    "pre_vote_reply": (14, (("term", int), ("round", int), ("granted", bool), ("stranger", bool))),
    # Large messages travel in pieces, between which other messages can pass; the message without its bulk comes last.
    "part": (19, (("data", bytes),)),
    "whole": (20, (("message", bytes),)),
    # Heartbeats of a leader, and of a follower, that waits for its disk.
    "alive": (21, (("term", int),)),
    "alive_reply": (22, (("term", int),)),
    # A member cannot continue from its state; `applied` is the last entry of that state.
    "snapshot_request": (23, (("applied", int),)),
}
BULK_BYTES = 4 * 1024 * 1024
"""Larger messages travel in pieces. Entries larger than this are sent one at a time (`RaftSettings.append_bytes_max`)."""
_BULK_PLACES: dict[str, tuple[int, ...]] = {"append_entries": (7, 0, 0), "propose": (2,), "page": (2,)}
"""Place of the possibly large value among the encoded fields of a message."""
AFTER_SYNC = frozenset({"append_reply", "snapshot_reply"})
"""Messages that promise that data is on disk, so they wait for a sync. Terms and votes are synced when they change."""

_KINDS = {number: (name, layout) for name, (number, layout) in _LAYOUTS.items()}


class FrameError(ValueError):
    """A frame that is not one of ours."""


def encode(message: dict[str, Any]) -> bytes:
    """Encode a message dictionary; its ``type`` chooses the layout."""
    number, layout = _LAYOUTS[message["type"]]
    data: bytes = msgpack.packb([number, *[message[name] for name, _ in layout]])
    return data


def bulk_of(message: dict[str, Any]) -> bytes | None:
    """Return the value of a message that is so large that it travels in pieces, None if there is none."""
    kind = message["type"]
    if kind == "append_entries":
        entries = message["entries"]
        large = entries[0][0] if len(entries) == 1 else b""
    elif kind == "propose":
        large = message["batch"]
    elif kind == "page":
        large = message["data"]
    else:
        return None
    return large if len(large) > BULK_BYTES else None


def envelope(message: dict[str, Any]) -> bytes:
    """Encode a message without its `bulk_of`, whose pieces precede it."""
    number, layout = _LAYOUTS[message["type"]]
    fields: list[Any] = [number, *[message[name] for name, _ in layout]]
    _put(fields, _BULK_PLACES[message["type"]], b"")
    return encode({"type": "whole", "message": msgpack.packb(fields)})


def _put(fields: list[Any], place: tuple[int, ...], value: bytes) -> None:
    """Put a value at a place in nested lists; copy the inner lists, which may be shared."""
    for step in place[:-1]:
        fields[step] = list(fields[step])
        fields = fields[step]
    fields[place[-1]] = value


def frame(payload: bytes) -> bytes:
    """Prefix a payload with its length."""
    return len(payload).to_bytes(4, "big") + payload


def decode(payload: bytes | memoryview, bulk: bytes | None = None) -> dict[str, Any]:
    """Decode and check one payload; `bulk` is the value whose pieces came before it, for a message without it.

    Raises:
        FrameError: it is not exactly one message of a known layout.
    """
    try:
        fields = msgpack.unpackb(payload, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as exc:
        raise FrameError(f"not MessagePack: {exc}") from exc
    if type(fields) is not list or not fields or type(fields[0]) is not int or fields[0] not in _KINDS:
        raise FrameError("not a message of a known kind")
    name, layout = _KINDS[fields[0]]
    if len(fields) != len(layout) + 1:
        raise FrameError(f"a {name} message has {len(layout)} fields, not {len(fields) - 1}")
    if bulk is not None:
        _put_bulk(name, fields, bulk)
    message: dict[str, Any] = {"type": name}
    for (field, kinds), value in zip(layout, fields[1:], strict=True):
        if type(value) is not kinds and not (isinstance(kinds, tuple) and type(value) in kinds):
            raise FrameError(f"field {field} of a {name} message has the wrong type")
        message[field] = value
    if name == "append_entries":
        _check_entries(message["entries"])
    return message


def _put_bulk(name: str, fields: list[Any], bulk: bytes) -> None:
    try:
        _put(fields, _BULK_PLACES[name], bulk)
    except (LookupError, TypeError) as exc:
        raise FrameError(f"a {name} message has no place for what came in pieces") from exc


def _check_entries(entries: list[Any]) -> None:
    for entry in entries:
        if (
            type(entry) is not list
            or len(entry) != 3
            or type(entry[0]) is not bytes
            or not entry[0]
            or type(entry[1]) is not int
            or type(entry[2]) is not int
        ):
            raise FrameError("an entry must be [command, index, term]")
