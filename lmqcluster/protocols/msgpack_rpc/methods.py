"""The method table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from ...core import Op
from ...core.commands import Delivered
from ...node.proposer import Group
from ...node.queues.pulls import Waiter
from ...node.queues.push_copies import push_copies
from ...node.queues.rules import check_rules
from ...wire.errors import LmqError
from ...wire.legacy_msgpack import CONTENT_TYPE, pack
from ...wire.limits import NAME_BYTES_MAX, PULL_COUNT_MAX, PUSH_COUNT_MAX
from ...wire.properties import Rules, parse_properties, parse_rules, properties_bytes, rules_bytes
from . import replies
from .arguments import arity, body_of, content_types_of, count, key_of, plain_item, text, texts, wait
from .batch_methods import BATCH_METHODS
from .connection import MANY_BYTES_MAX, Connection, Handler
from .job_methods import JOB_METHODS
from .queue_methods import QUEUE_METHODS

__all__ = ["METHODS"]

Arguments = list[Any]
_SEQUENCE_MAX = 1 << 62


class _Call:
    """One request that has a command of its own (`Sink`)."""

    __slots__ = ("connection", "render")

    def __init__(self, connection: Connection, render: Callable[[Any], bytes]) -> None:
        self.connection = connection
        self.render = render

    def completed(self, group: Group, result: Any) -> None:
        """Answer, once."""
        tickets, group.tickets = group.tickets, []
        for msgid in tickets:
            self.connection.succeed(msgid, self.render(result))

    def failed(self, group: Group, error: LmqError) -> None:
        """Refuse, once."""
        if group.command[0] == Op.PUSH:
            self.connection.push_refused(error)
        tickets, group.tickets = group.tickets, []
        for msgid in tickets:
            self.connection.fail(msgid, error.rpc_text())


def _propose(
    connection: Connection, msgid: Any, command: list[Any], size_bytes: int, render: Callable[[Any], bytes]
) -> None:
    connection.service.proposer.add(Group(command, [msgid], _Call(connection, render)), size_bytes)


def _ok(_result: Any) -> bytes:
    return replies.OK


def _flag_list(flags: list[int]) -> bytes:
    return replies.array_header(len(flags)) + b"".join([replies.FLAG_TEXTS[flag & 3] for flag in flags])


def _push(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    if len(arguments) == 2:
        connection.push(msgid, arguments)
        return
    arity(arguments, 3, 3)
    name, options = text(arguments[0]), _options(arguments[2])
    key = key_of(options.get(b"key"))
    if key is None:
        connection.push(msgid, arguments[:2])
        return
    _push_keyed(connection, msgid, name, [arguments[1]], [key], lambda flags: replies.FLAG_TEXTS[flags[0] & 3])


def _push_many(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 2, 3)
    name, contents = text(arguments[0]), arguments[1]
    if type(contents) is not list:
        raise LmqError("bad_arguments", "the contents must be a list")
    if len(contents) > PUSH_COUNT_MAX:
        raise LmqError("too_large", f"a batch may have at most {PUSH_COUNT_MAX} messages, this has {len(contents)}")
    options = _options(arguments[2]) if len(arguments) == 3 else {}
    keys = options.get(b"keys")
    if keys is not None:
        if type(keys) is not list or len(keys) != len(contents):
            raise LmqError("bad_arguments", "keys must be a list with a key or nil for each content")
        scope = key_of(options.get(b"scope")) or b""
        types = content_types_of(options.get(b"content_types"), contents)
        _push_keyed(connection, msgid, name, contents, [key_of(key) for key in keys], _flag_list, scope, types)
        return
    if options:
        raise LmqError("bad_arguments", "a scope and content types need keys")
    first = connection.next_sequence
    connection.next_sequence += len(contents)
    if connection.push_error is not None:
        raise connection.push_error
    bodies = [body_of(content) for content in contents]
    connection.service.check_name(name, connection.kept_for())
    for body in bodies:
        connection.service.check_push(len(body))
    size = sum(map(len, bodies)) + 8 * len(bodies) + 64
    command = [Op.PUSH, name, CONTENT_TYPE, bodies, connection.producer, first, *connection.producer_owner]
    _propose(connection, msgid, command, size, _flag_list)


def _push_keyed(
    connection: Connection,
    msgid: Any,
    name: bytes,
    contents: list[Any],
    keys: list[bytes | None],
    render: Callable[[Any], bytes],
    scope: bytes = b"",
    types: list[bytes | None] | None = None,
) -> None:
    connection.service.check_name(name, connection.kept_for())
    rows: list[list[Any]] = []
    size = 64
    for content, key, content_type in zip(contents, keys, types or repeat(None, len(contents)), strict=True):
        body = body_of(content) if content_type is None else content
        connection.service.check_push(len(body))
        connection.service.check_key(key)
        rows.append([body, content_type or CONTENT_TYPE, [], key])
        size += len(body) + len(content_type or b"") + 64
    _propose(connection, msgid, [Op.PUSH_ITEMS, name, rows, scope, *connection.owned()], size, render)


def _options(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise LmqError("bad_arguments", "options must be a map")
    unknown = set(value) - {b"key", b"keys", b"scope", b"content_types"}
    if unknown:
        raise LmqError("bad_arguments", f"unknown option {min(map(str, unknown))}")
    return value


def _is_again(options: Any) -> bool:
    if type(options) is not dict or set(options) != {b"again"} or type(options[b"again"]) is not bool:
        raise LmqError("bad_arguments", "the options must be {again: bool}")
    return bool(options[b"again"])


def _producer(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 2, 2)
    producer, first = text(arguments[0]), arguments[1]
    if not 8 <= len(producer) <= 64 or type(first) is not int or not 0 < first < _SEQUENCE_MAX:
        raise LmqError("bad_arguments", "a producer is 8 to 64 bytes and a first sequence from 1 on")
    connection.bind(producer, first)
    connection.succeed(msgid, replies.OK)


class _ManyPuller:
    """The answer to one ``pull_many`` (`Puller`)."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def waiting(self) -> set[Waiter]:
        return self._connection.waiting

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        connection = self._connection
        encode = connection.encoder().encode
        encoded: list[bytes] = []
        size = 0
        try:
            for one in delivered:
                encoded.append(encode(one))
                size += len(encoded[-1])
                if size > MANY_BYTES_MAX:
                    break
        except replies.LargeBodyError:
            connection.encode_later(token, delivered, self._send)
            return
        self._send(token, delivered, encoded)

    def _send(self, token: Any, delivered: list[Delivered], encoded: list[bytes]) -> None:
        connection = self._connection
        size = sum(map(len, encoded))
        if connection.must_ask(size) and not connection.has_room(size):
            connection.give_back(token, delivered)
            return
        if len(encoded) < len(delivered):
            connection.service.pulls.put_back(delivered[len(encoded) :])
        connection.succeed(token, replies.array_header(len(encoded)) + b"".join(encoded))

    def pull_failed(self, token: Any, error: LmqError) -> None:
        self._connection.fail(token, error.rpc_text())


class _LookingPuller:
    """The answer to a ``pull_any`` that does not wait (`Puller`).

    The node may have to look for a message first. Until then the client's next requests, which take effect later, are held.
    """

    __slots__ = ("_connection", "_holds", "_is_over")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._holds = False
        self._is_over = False

    def hold(self) -> None:
        if not self._is_over:
            self._holds = True
            self._connection.hold()

    def _go_on(self) -> None:
        self._is_over = True
        if self._holds:
            self._holds = False
            self._connection.go_on()

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def waiting(self) -> set[Waiter]:
        return self._connection.waiting

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        self._connection.pulled(token, delivered)
        self._go_on()

    def pull_failed(self, token: Any, error: LmqError) -> None:
        self._connection.pull_failed(token, error)
        self._go_on()


class _Cancellation:
    """Looks for the pull once more, after all that were sent before have come back from the log (`Sink`)."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def completed(self, group: Group, result: Any) -> None:  # noqa: ARG002
        """The pull has its answer by now, or stands in a line."""
        self._connection.service.pulls.cancel(self._connection, group.tickets[0])

    def failed(self, group: Group, error: LmqError) -> None:
        """The pull, which was sent before, fares no better."""


def _cancel(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``cancel(msgid)``: end a waiting pull of this connection, which is then answered as empty."""
    arity(arguments, 1, 1)
    pulls = connection.service.pulls
    if not pulls.cancel(connection, arguments[0]):
        connection.service.proposer.add(Group([Op.BARRIER], [arguments[0]], _Cancellation(connection)), 16)
    connection.succeed(msgid, replies.OK)


def _pull_many(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 2, 3)
    name, most = text(arguments[0]), count(arguments[1], PULL_COUNT_MAX)
    wait_s = 0.0 if len(arguments) == 2 else wait(arguments[2])
    connection.check_waiters()
    connection.service.check_name(name, connection.kept_for())
    connection.service.receipts()
    connection.service.pulls.start(name, (_ManyPuller(connection), msgid, most, wait_s))


def _pull_any(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 1, 2)
    pattern = text(arguments[0])
    wait_s = None if len(arguments) == 1 else wait(arguments[1])
    connection.check_waiters()
    connection.service.receipts()
    if wait_s is None or wait_s > 0:
        connection.service.pulls.start_any(pattern, (connection, msgid, 1, wait_s), connection.client())
        return
    puller = _LookingPuller(connection)
    if not connection.service.pulls.start_any(pattern, (puller, msgid, 1, wait_s), connection.client()):
        puller.hold()


def _push_all(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 2, 2)
    pattern = text(arguments[0])
    item = plain_item(arguments[1])
    connection.slow.check()
    connection.run(msgid, _copied(connection, pattern, item))
    # What the client sends next takes effect behind it.
    connection.hold()


async def _copied(connection: Connection, pattern: bytes, item: list[Any]) -> bytes:
    try:
        await push_copies(connection.service, pattern, item, connection.client())
    finally:
        connection.go_on()
    return replies.OK


def _settle(op: Op) -> Handler:
    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        connection.settle(op, msgid, arguments)

    return handler


def _forget_keys(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``forget_keys([scope]) -> how many keys they held``."""
    arity(arguments, 1, 1)
    scopes = texts(arguments[0], PUSH_COUNT_MAX)
    _propose(connection, msgid, [Op.FORGET_KEYS, scopes, *connection.owned()], 64 + sum(map(len, scopes)), pack)


def _settle_many(op: Op) -> Handler:
    """``done_many`` and its like: ``(name, [id][, {"again": true}])``.

    With *again* the caller repeats a request whose answer it has lost: a receipt that an earlier one has settled gives
    true too, and one of which nothing is known any more gives nil.
    """

    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        arity(arguments, 2, 2 if op == Op.EXTEND else 3)
        name, ids = text(arguments[0]), texts(arguments[1], PULL_COUNT_MAX)
        again = len(arguments) == 3 and _is_again(arguments[2])
        parse = connection.service.receipts().parse
        numbers = [parse(one) for one in ids]

        def render(settled: list[bool] | None) -> bytes:
            results: list[bool | None] = [*settled] if settled is not None else [False] * len(numbers)
            if again:
                settled_by = connection.service.machine().settled_by
                results = [ok or settled_by(op, name, number) for ok, number in zip(results, numbers, strict=True)]
            return pack(results)

        if len(name) > NAME_BYTES_MAX:
            connection.succeed(msgid, render(None))
            return
        _propose(connection, msgid, [op, name, numbers], 64 + 10 * len(numbers), render)

    return handler


def _delete(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 1, 1)
    name = text(arguments[0])
    if len(name) > NAME_BYTES_MAX:
        connection.succeed(msgid, replies.OK)
    else:
        _propose(connection, msgid, [Op.DELETE, name], 64, _ok)


def _update_props(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 1, 2)
    name = text(arguments[0])
    connection.service.check_name(name, connection.kept_for())
    connection.service.check_room()
    if len(arguments) == 2 and type(arguments[1]) is list:
        raise LmqError("bad_arguments", "properties must be a map, not a list")
    properties = parse_properties(arguments[1]) if len(arguments) == 2 else []
    if properties:
        connection.service.check_options(properties)
        pairs = [list(pair) for pair in properties]
        _propose(connection, msgid, [Op.SET_PROPERTIES, name, pairs], 64 + properties_bytes(properties), _ok)
    else:
        _propose(connection, msgid, [Op.CLEAR_PROPERTIES, name], 64, _ok)


def _set_default_props(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 1, 1)
    rules = parse_rules(arguments[0])
    for _, properties in rules:
        connection.service.check_options(properties)
    try:
        check_rules(rules)
    except LmqError as exc:
        # LMQ's clients know one text for every invalid rule list.
        raise LmqError("bad_property", exc.message) from exc
    rows = [[pattern.encode(), [list(pair) for pair in properties]] for pattern, properties in rules]
    _propose(connection, msgid, [Op.SET_DEFAULTS, rows], 64 + rules_bytes(rules), _ok)


def _get_default_props(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 0, 0)

    def render(_result: Any) -> bytes:
        return pack(_shown_rules(connection.service.defaults()))

    _propose(connection, msgid, [Op.BARRIER], 16, render)


def _shown_rules(rules: Rules) -> list[Any]:
    return [[pattern, {_shown_name(n): _shown_value(n, v) for n, v in properties}] for pattern, properties in rules]


def _shown_name(name: str) -> str:
    return "pack" if name == "accum" else name


def _shown_value(name: str, value: Any) -> Any:
    if name == "accum":
        return value / 1000
    if name == "hooks":
        return {point: [[module, list(arguments)] for module, arguments in modules] for point, modules in value}
    return value


def _auth(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``auth(token) -> "ok"``: the connection may do what the token allows from now on."""
    arity(arguments, 1, 1)
    connection.authenticate(text(arguments[0]))
    connection.succeed(msgid, replies.OK)


def _ping(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 0, 0)
    connection.succeed(msgid, b"\xa4pong")


def _cluster(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 0, 0)
    status = connection.node.cluster_status()
    shown = {
        "self": status["self"],
        "leader": status["leader"],
        "rpc": [node["rpc"] for node in status["nodes"] if node["rpc"]],
    }
    connection.show(msgid, pack(shown))


METHODS: dict[bytes, Handler] = {
    b"push": _push,
    b"pull": Connection.pull,
    b"push_all": _push_all,
    b"pull_any": _pull_any,
    b"push_many": _push_many,
    b"pull_many": _pull_many,
    b"done": _settle(Op.ACK),
    b"release": _settle(Op.NACK),
    b"retain": _settle(Op.EXTEND),
    b"done_many": _settle_many(Op.ACK),
    b"release_many": _settle_many(Op.NACK),
    b"retain_many": _settle_many(Op.EXTEND),
    b"put_back_many": _settle_many(Op.PUT_BACK),
    b"cancel": _cancel,
    b"forget_keys": _forget_keys,
    b"delete": _delete,
    b"update_props": _update_props,
    b"set_default_props": _set_default_props,
    b"get_default_props": _get_default_props,
    b"producer": _producer,
    b"auth": _auth,
    b"ping": _ping,
    b"cluster": _cluster,
    **BATCH_METHODS,
    **QUEUE_METHODS,
    **JOB_METHODS,
}
"""LMQ's methods and lmqcluster's. Nothing else can be called."""
