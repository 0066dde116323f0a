"""Methods on schedules. Their answers may arrive in a different order than the requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

from ....node.queues.schedules.cron import CRON_BYTES_MAX, ZONE_BYTES_MAX
from ....node.queues.schedules.request import MISSED, ScheduleRequest, check_schedule_name
from ....node.queues.schedules.schedules import PAGE_MAX, ScheduleInfo, Schedules
from ....wire.errors import LmqError
from ..connection.connection import Connection, Handler
from ..values.arguments import arity, text
from ..values.options import MESSAGE_OPTIONS, given, seconds_of
from .pushes import whole_item_of

__all__ = ["SCHEDULE_METHODS"]

Arguments = list[Any]
_Method = Callable[[Schedules, Connection, Arguments], Coroutine[Any, Any, Any]]
_RULE = frozenset((b"interval", b"cron", b"zone", b"start", b"end", b"jitter", b"missed"))
_MESSAGE = (MESSAGE_OPTIONS - {b"due"}) | {b"content_type"}
_WORD_BYTES_MAX = 16


def _slow(method: _Method, *, large: bool = False) -> Handler:
    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        connection.run_packed(msgid, lambda: method(connection.service.schedules, connection, arguments), large=large)

    return handler


async def _set_schedule(schedules: Schedules, connection: Connection, arguments: Arguments) -> str:
    """``set_schedule(name, queue, content, {interval or cron, zone, start, ...}) -> created, replaced or unchanged``."""
    arity(arguments, 4, 4)
    options = given(arguments[3], _RULE | _MESSAGE)
    message = {name: value for name, value in options.items() if name in _MESSAGE}
    bytes_max = connection.service.sender.attribute_bytes_max
    asked = ScheduleRequest(
        check_schedule_name(text(arguments[0])),
        text(arguments[1]),
        whole_item_of(arguments[2], message or None, bytes_max),
        interval_s=seconds_of(options, b"interval"),
        cron=_word(options, b"cron", CRON_BYTES_MAX),
        zone=_word(options, b"zone", ZONE_BYTES_MAX) or "UTC",
        start_s=seconds_of(options, b"start"),
        end_s=seconds_of(options, b"end"),
        jitter_s=seconds_of(options, b"jitter") or 0.0,
        missed=_word(options, b"missed", _WORD_BYTES_MAX) or MISSED[0],
    )
    return await schedules.set(asked, connection.known_principal())


def _changing(change: Callable[[Schedules, bytes, Any], Coroutine[Any, Any, None]]) -> Handler:
    """``pause_schedule(name) -> "ok"``; likewise resume, run and delete."""

    async def method(schedules: Schedules, connection: Connection, arguments: Arguments) -> str:
        arity(arguments, 1, 1)
        await change(schedules, check_schedule_name(text(arguments[0])), connection.known_principal())
        return "ok"

    return _slow(method)


async def _schedule(schedules: Schedules, connection: Connection, arguments: Arguments) -> dict[str, Any] | None:
    """``schedule(name) -> {queue, interval_s, cron, ..., content} or nil``."""
    arity(arguments, 1, 1)
    name = check_schedule_name(text(arguments[0]))
    await connection.service.sender.look_up()
    if schedules.find(name) is None:
        return None
    info = schedules.show(name, connection.known_principal())
    return {**_row(info), "content": info.content}


async def _schedules(schedules: Schedules, connection: Connection, arguments: Arguments) -> list[Any]:
    """``schedules([after[, limit]]) -> [[{name, queue, ...}], name after which the next page begins, or nil]``."""
    arity(arguments, 0, 2)
    after = text(arguments[0]) if arguments else b""
    limit = arguments[1] if len(arguments) == 2 else PAGE_MAX
    if type(limit) is not int or not 0 < limit <= PAGE_MAX:
        raise LmqError("bad_arguments", f"the length of a page must be an integer from 1 to {PAGE_MAX}")
    await connection.service.sender.look_up()
    found, following = schedules.page(connection.known_principal(), after, limit)
    return [[_row(one) for one in found], following]


def _row(info: ScheduleInfo) -> dict[str, Any]:
    row = asdict(info)
    row["size"] = len(row.pop("content"))
    row["attributes"] = row.pop("packed_attributes")
    return row


def _word(options: dict[bytes, Any], name: bytes, bytes_max: int) -> str | None:
    value = options.get(name)
    if value is None:
        return None
    if type(value) is not bytes or not 0 < len(value) <= bytes_max or not value.isascii():
        raise LmqError("bad_arguments", f"{name.decode()} must be ASCII text of 1 to {bytes_max} bytes")
    return value.decode()


SCHEDULE_METHODS: dict[bytes, Handler] = {
    b"set_schedule": _slow(_set_schedule),
    b"pause_schedule": _changing(Schedules.pause),
    b"resume_schedule": _changing(Schedules.resume),
    b"run_schedule": _changing(Schedules.run),
    b"delete_schedule": _changing(Schedules.delete),
    b"schedule": _slow(_schedule, large=True),
    b"schedules": _slow(_schedules, large=True),
}
