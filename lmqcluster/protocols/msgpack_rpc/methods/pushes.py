"""Methods that push."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....core import PushFlag
from ....core.log.commands import Push
from ....node.commit.proposer import PendingCommand
from ....node.queues.pushes.copies import push_copies
from ....node.queues.sending import requests
from ....node.queues.sending.push_items import PushItem, Stored, check_all_stored, refusal_of, stored
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import CONTENT_TYPE, pack
from ....wire.limits import PUSH_COUNT_MAX
from ..connection.connection import Connection, Handler
from ..values import replies
from ..values.arguments import arity, body_of, content_types_of, key_of, plain_item, text, typed_body
from ..values.options import MESSAGE_OPTIONS, attributes_of, flag_of, given, push_options, seconds_of
from .push_each import push_each
from .single_commands import propose

__all__ = ["PUSH_METHODS", "whole_item_of"]

Arguments = list[Any]
_ITEM_OPTIONS = MESSAGE_OPTIONS | {b"key"}
_WHOLE_ITEM_OPTIONS = _ITEM_OPTIONS | {b"content_type"}
_PUSH_OPTIONS = _ITEM_OPTIONS | {b"wait", b"sequence"}
_BATCH_OPTIONS = frozenset((b"keys", b"content_types", b"options", b"sequence"))
_SHOWN_MAX = 10


def item_of(content: Any, options: Any, attribute_bytes_max: int) -> PushItem:
    """Return a message with its options, nil for none.

    Raises:
        LmqError: ``bad_arguments``, ``bad_request``, ``too_large``.
    """
    body = body_of(content)
    if options is None:
        return PushItem(body, CONTENT_TYPE)
    wanted = given(options, _ITEM_OPTIONS)
    attributes, key = attributes_of(wanted, attribute_bytes_max), key_of(wanted.get(b"key"))
    return PushItem(body, CONTENT_TYPE, attributes, key, push_options(wanted))


def whole_item_of(content: Any, options: Any, attribute_bytes_max: int) -> PushItem:
    """Return a message whose options may include its content type; nil for none.

    Raises:
        LmqError: ``bad_arguments``, ``bad_request``, ``too_large``.
    """
    if options is None:
        return item_of(content, None, attribute_bytes_max)
    wanted = given(options, _WHOLE_ITEM_OPTIONS)
    kinds = content_types_of([wanted.pop(b"content_type", None)], [content])
    key = key_of(wanted.pop(b"key", None))
    [item] = _items([content], kinds or [None], [key], [wanted], attribute_bytes_max)
    return item


def _push(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``push(name, content[, {key, delay, due, ttl, priority, label, group, wait, sequence}])``."""
    if len(arguments) != 2:
        _push_with_options(connection, msgid, arguments)
        return
    name, content = arguments
    service, sequence = connection.service, connection.next_sequence
    # A refused push uses up its number too, so that the client and the node keep counting alike.
    connection.next_sequence = sequence + 1
    if connection.push_error is not None:
        raise connection.push_error.again()
    if type(name) is not bytes:
        raise LmqError("bad_arguments", "a queue name must be a string")
    body = body_of(content)
    size = len(body)
    if size <= service.sender.message_bytes_max:
        service.sender.check_push(size)
    else:
        service.sender.check_packed(body)
    proposer, answers = service.sender.proposer, connection.answers
    command = proposer.open_command(answers, Push, name, connection.last_number)
    # The numbers of a producer have no gaps within a command, because a command of its other pushes raises `last_number`.
    if command is not None and command.producer is connection.producer:
        command.contents.append(body)
        connection.last_number = proposer.share(size + 8, (connection, msgid))
        connection.note_push(name, msgid)
        return
    service.sender.check_name(name, connection.kept_for())
    command = Push(name, CONTENT_TYPE, [body], connection.producer, sequence, connection.producer_owner)
    connection.add(PendingCommand(command, [(connection, msgid)], answers), size + 64)
    connection.note_push(name, msgid)


def _push_with_options(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    first = connection.take_numbers(b"push", arguments)
    arity(arguments, 3, 3)
    name, options = text(arguments[0]), given(arguments[2], _PUSH_OPTIONS)
    wait_s = seconds_of(options, b"wait")
    show = _show_sequence if flag_of(options, b"sequence") else _show
    options.pop(b"wait", None)
    options.pop(b"sequence", None)
    attribute_bytes_max = connection.service.sender.attribute_bytes_max
    if wait_s:
        _push_or_wait(connection, msgid, name, item_of(arguments[1], options, attribute_bytes_max), wait_s, show)
        return

    def render_flag(flags: list[int]) -> bytes:
        check_all_stored(flags)
        return replies.FLAG_TEXTS[flags[0] & 3]

    def render(results: list[Stored]) -> bytes:
        return show(results[0])

    if options or show is _show_sequence:
        item = item_of(arguments[1], options, attribute_bytes_max)
        _push_items(connection, msgid, name, [item], render, first)
    else:
        _push_plain(connection, msgid, name, [arguments[1]], render_flag, first)


def _show(one: Stored) -> bytes:
    """Return the result of a push."""
    return replies.FLAG_TEXTS[one.flag & 3]


def _show_sequence(one: Stored) -> bytes:
    """Return the result of a push that asks for the sequence of its message."""
    return replies.array_header(2) + replies.FLAG_TEXTS[one.flag & 3] + pack(one.told_sequence)


def _push_or_wait(
    connection: Connection, msgid: Any, name: bytes, item: PushItem, wait_s: float, show: Callable[[Stored], bytes]
) -> None:
    connection.check_memory()
    outcome = connection.service.push_or_wait(name, [item], wait_s, connection.known_principal().owner)

    async def shown() -> bytes:
        (one,) = await outcome
        return show(one)

    connection.run(msgid, shown(), waits=True)


def _push_many(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``push_many(name, [content][, {keys, content_types, options, sequence}])``."""
    first = connection.take_numbers(b"push_many", arguments)
    arity(arguments, 2, 3)
    name, contents = text(arguments[0]), arguments[1]
    if type(contents) is not list:
        raise LmqError("bad_arguments", "the contents must be a list")
    if len(contents) > PUSH_COUNT_MAX:
        raise LmqError("too_large", f"a batch may have at most {PUSH_COUNT_MAX} messages, this has {len(contents)}")
    if len(arguments) == 3 and arguments[2] != {}:
        _push_batch(connection, msgid, name, contents, given(arguments[2], _BATCH_OPTIONS), first)
        return
    _push_plain(connection, msgid, name, contents, _flag_list, first)


def _push_plain(
    connection: Connection,
    msgid: Any,
    name: bytes,
    contents: list[Any],
    render: Callable[[list[int]], bytes],
    first: int | None,
) -> None:
    """Store contents without keys and options."""
    bodies = [body_of(content) for content in contents]
    connection.service.sender.check_name(name, connection.kept_for())
    for body in bodies:
        connection.service.sender.check_packed(body)
    producer, owner = connection.producer, connection.producer_owner
    propose(connection, msgid, requests.push_plain(name, CONTENT_TYPE, bodies, producer, first or 0, owner), render)


def _push_batch(
    connection: Connection,
    msgid: Any,
    name: bytes,
    contents: list[Any],
    options: dict[bytes, Any],
    first: int | None,
) -> None:
    """Store a batch with keys or options; `first` is the number of its first content if there are no keys."""
    keys, each = options.get(b"keys"), options.get(b"options")
    tells_sequence = flag_of(options, b"sequence")
    if keys is None and each is None and not tells_sequence:
        raise LmqError("bad_arguments", "content types need keys, options for each content, or sequence")
    raw_keys = list(map(key_of, _as_many(keys, contents, "keys must be a list with a key or nil for each content")))
    types = content_types_of(options.get(b"content_types"), contents)
    kinds = types or [None] * len(contents)
    maps = _as_many(each, contents, "options must be a list with a map or nil for each content")
    wanted = [None if one is None else given(one, MESSAGE_OPTIONS) for one in maps]
    show = _show_sequence if tells_sequence else _show

    def render(results: list[Stored]) -> bytes:
        return replies.array_header(len(results)) + b"".join(map(show, results))

    items = _items(contents, kinds, raw_keys, wanted, connection.service.sender.attribute_bytes_max)
    _push_items(connection, msgid, name, items, render, first)


def _items(
    contents: list[Any],
    types: list[bytes | None],
    keys: list[bytes | None],
    options: Sequence[dict[bytes, Any] | None],
    attribute_bytes_max: int,
) -> list[PushItem]:
    items: list[PushItem] = []
    for content, kind, key, wanted in zip(contents, types, keys, options, strict=True):
        body, content_type = typed_body(content, kind)
        if not wanted:
            items.append(PushItem(body, content_type, b"", key))
        else:
            attributes = attributes_of(wanted, attribute_bytes_max)
            items.append(PushItem(body, content_type, attributes, key, push_options(wanted)))
    return items


def _as_many(values: Any, contents: list[Any], wanted: str) -> list[Any]:
    if values is None:
        return [None] * len(contents)
    if type(values) is not list or len(values) != len(contents):
        raise LmqError("bad_arguments", wanted)
    return values


def _push_items(
    connection: Connection,
    msgid: Any,
    name: bytes,
    items: list[PushItem],
    render: Callable[[list[Stored]], bytes],
    first: int | None,
) -> None:
    """Store messages with options, all or none of them; under the producer's numbers if there is a producer."""
    service = connection.service
    service.sender.check_name(name, connection.kept_for())
    for item in items:
        service.sender.check_item(item)
    if first is None or connection.producer is None:
        request = requests.push_rows(service.sender.due_times, name, items, connection.state_owner())
    else:
        owner, producer = connection.producer_owner, connection.producer
        request = requests.push_rows(service.sender.due_times, name, items, owner, producer, first)

    def shown(results: list[tuple[int, int]]) -> bytes:
        check_all_stored([flag for flag, _sequence in results])
        return render([stored(*one) for one in results])

    propose(connection, msgid, request, shown)


def _flag_list(flags: list[int]) -> bytes:
    check_all_stored(flags)
    return replies.array_header(len(flags)) + b"".join([replies.FLAG_TEXTS[flag & 3] for flag in flags])


def _push_all(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``push_all(pattern, content)``."""
    arity(arguments, 2, 2)
    pattern = text(arguments[0])
    item = plain_item(arguments[1])
    connection.run(msgid, _copied(connection, pattern, item))
    # Later requests of the client must take effect after the copies.
    connection.hold()


async def _copied(connection: Connection, pattern: bytes, item: list[Any]) -> bytes:
    try:
        stored = await push_copies(connection.service.sender, pattern, item, connection.client())
    finally:
        connection.go_on()
    _check_copies(stored)
    return replies.OK


def _check_copies(stored: list[tuple[bytes, int]]) -> None:
    """Raise if a queue has refused its copy.

    Raises:
        LmqError: the refusal, if there is only one queue; otherwise ``stored_in_part``.
    """
    refused = [(queue, flag) for queue, flag in stored if flag >= PushFlag.FULL]
    if not refused:
        return
    if len(stored) == 1:
        raise refusal_of(refused[0][1])
    shown = ", ".join(repr(queue.decode("utf-8", "backslashreplace")) for queue, _flag in refused[:_SHOWN_MAX])
    more = ", ..." if len(refused) > _SHOWN_MAX else ""
    why = refusal_of(refused[0][1]).message
    raise LmqError("stored_in_part", f"{len(refused)} of {len(stored)} queues took no copy: {shown}{more}; {why}")


PUSH_METHODS: dict[bytes, Handler] = {
    b"push": _push,
    b"push_many": _push_many,
    b"push_each": push_each,
    b"push_all": _push_all,
}
