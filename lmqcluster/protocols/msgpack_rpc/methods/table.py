"""The method table."""

from __future__ import annotations

from typing import Any

from ....node.access.named_queues import check_named_queues
from ....node.queues.sending import requests
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import pack
from ....wire.limits import NAME_BYTES_MAX
from ....wire.properties import Rules, parse_annotations, parse_properties, parse_rules
from ..connection.connection import Connection, Handler
from ..values import replies
from ..values.arguments import arity, text
from ..values.options import flag_of, given
from .batches import BATCH_METHODS
from .jobs import JOB_METHODS
from .move_tasks import MOVE_TASK_METHODS
from .pulls import PULL_METHODS
from .pushes import PUSH_METHODS
from .queues import QUEUE_METHODS
from .schedules import SCHEDULE_METHODS
from .sessions import SESSION_METHODS
from .settlements import SETTLE_METHODS
from .single_commands import propose, say_ok
from .transactions import TRANSACTION_METHODS

__all__ = ["METHODS"]

Arguments = list[Any]
_SEQUENCE_MAX = 1 << 62
_UPDATE_OPTIONS = frozenset((b"only_unset", b"annotations"))


def _producer(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 2, 2)
    producer, first = text(arguments[0]), arguments[1]
    if not 8 <= len(producer) <= 64 or type(first) is not int or not 0 < first < _SEQUENCE_MAX:
        raise LmqError("bad_arguments", "a producer is 8 to 64 bytes and a first sequence from 1 on")
    connection.bind(producer, first)
    connection.succeed(msgid, replies.OK)


def _delete(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 1, 1)
    name = text(arguments[0])
    if len(name) > NAME_BYTES_MAX:
        connection.succeed(msgid, replies.OK)
    else:
        propose(connection, msgid, requests.delete(name), say_ok)


def _update_props(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``update_props(name[, properties[, {only_unset, annotations}]])``."""
    arity(arguments, 1, 3)
    options = given(arguments[2], _UPDATE_OPTIONS) if len(arguments) == 3 else {}
    only_unset = flag_of(options, b"only_unset")
    annotations = parse_annotations(options.get(b"annotations", {}))
    name = text(arguments[0])
    connection.service.sender.check_name(name, connection.kept_for())
    connection.service.sender.check_room()
    if len(arguments) >= 2 and type(arguments[1]) is list:
        raise LmqError("bad_arguments", "properties must be a map, not a list")
    properties = parse_properties(arguments[1]) if len(arguments) >= 2 else []
    check_named_queues(connection.known_principal(), properties)
    if properties or only_unset or annotations:
        request = requests.set_properties(name, properties, annotations, only_unset=only_unset)
        propose(connection, msgid, request, say_ok)
    else:
        propose(connection, msgid, requests.clear_properties(name), say_ok)


def _set_default_props(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 1, 1)
    rules = parse_rules(arguments[0])
    try:
        spread = connection.service.set_defaults(rules)
    except LmqError as exc:
        # LMQ's clients expect one error text for all invalid rule lists.
        raise LmqError("bad_property", exc.message) from exc

    async def answer() -> str:
        await spread
        return "ok"

    connection.run_packed(msgid, answer)


def _get_default_props(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 0, 0)

    def render(_result: Any) -> bytes:
        return pack(_shown_rules(connection.service.defaults()))

    propose(connection, msgid, requests.barrier(), render)


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
    """``auth(token) -> "ok"``: from now on the connection has the permissions of the token."""
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
    **PUSH_METHODS,
    **PULL_METHODS,
    **SETTLE_METHODS,
    **TRANSACTION_METHODS,
    **SESSION_METHODS,
    **SCHEDULE_METHODS,
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
    **MOVE_TASK_METHODS,
}
"""Methods of LMQ and lmqcluster. No others can be called."""
