"""Methods for writers that number their messages. Their answers may arrive in a different order than the requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

from ....node.queues.pushes.jobs import Jobs, Run, Stream
from ....node.queues.sending.command_sender import CommandSender
from ....wire.errors import LmqError
from ....wire.limits import PUSH_COUNT_MAX
from ..connection.connection import Connection, Handler
from ..values.arguments import arity, content_types_of, text, texts, typed_body
from ..values.options import MESSAGE_OPTIONS, attributes_of, given, push_options

__all__ = ["JOB_METHODS"]

Arguments = list[Any]
_Method = Callable[[Jobs, Connection, Arguments], Coroutine[Any, Any, Any]]
_OPTIONS = frozenset((b"job", b"stream", b"first", b"note", b"done", b"epoch", b"run", b"content_types", b"options"))


def _slow(method: _Method, *, large: bool = False) -> Handler:
    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        connection.run_packed(msgid, lambda: method(connection.service.jobs, connection, arguments), large=large)

    return handler


async def _push_marked(jobs: Jobs, connection: Connection, arguments: Arguments) -> int | None:
    """``push_marked(queue, [content], {job, stream, first[, note, done, epoch, run, ...]}) -> count, or nil if passed``."""
    arity(arguments, 3, 3)
    queue, contents, options = text(arguments[0]), arguments[1], arguments[2]
    if type(contents) is not list:
        raise LmqError("bad_arguments", "the contents must be a list")
    if type(options) is not dict or not {b"job", b"stream", b"first"} <= options.keys() <= _OPTIONS:
        raise LmqError("bad_arguments", "the options must be a map with job, stream and first")
    first, done = options[b"first"], options.get(b"done", False)
    if type(first) is not int or type(done) is not bool:
        raise LmqError("bad_arguments", "first must be an integer and done true or false")
    types = content_types_of(options.get(b"content_types"), contents) or [None] * len(contents)
    rows = [[*typed_body(content, kind), b""] for content, kind in zip(contents, types, strict=True)]
    _add_options(rows, options.get(b"options"), connection.service.sender)
    stream = Stream(text(options[b"job"]), text(options[b"stream"]), connection.known_principal().owner)
    run = _run(options.get(b"epoch"), options.get(b"run")) if options.keys() & {b"epoch", b"run"} else None
    return await jobs.push(queue, rows, stream, first, note=text(options.get(b"note", b"")), done=done, run=run)


async def _begin_epoch(jobs: Jobs, connection: Connection, arguments: Arguments) -> bool:
    """``begin_epoch(job, epoch, run) -> true, or false if the epoch is finished``."""
    arity(arguments, 3, 3)
    job, epoch, run = arguments
    return await jobs.begin(text(job), _run(epoch, run), connection.known_principal().owner)


async def _finish_epoch(jobs: Jobs, connection: Connection, arguments: Arguments) -> None:
    """``finish_epoch(job, epoch, run, rows, sum of their digests) -> nil``."""
    arity(arguments, 5, 5)
    job, epoch, run, rows, digest = arguments
    if type(rows) is not int:
        raise LmqError("bad_arguments", "the number of rows must be an integer")
    await jobs.finish(text(job), _run(epoch, run), rows, text(digest), connection.known_principal().owner)


def _run(epoch: object, name: object) -> Run:
    if type(epoch) is not int:
        raise LmqError("bad_arguments", "an epoch must be an integer")
    return Run(epoch, text(name))


async def _mark(jobs: Jobs, connection: Connection, arguments: Arguments) -> list[Any] | None:
    """``mark(job, stream[, first byte of the notes]) -> [position, whether done, bytes of notes, notes] or nil``."""
    arity(arguments, 2, 3)
    notes_from = arguments[2] if len(arguments) == 3 else 0
    if type(notes_from) is not int or notes_from < 0:
        raise LmqError("bad_arguments", "where the notes begin must be an integer from 0 on")
    stream = Stream(text(arguments[0]), text(arguments[1]), connection.known_principal().owner)
    found = await jobs.mark(stream, notes_from)
    return None if found is None else [found.position, found.done, found.note_bytes, found.notes]


async def _end_jobs(jobs: Jobs, connection: Connection, arguments: Arguments) -> int:
    """``end_jobs([job][, owner]) -> number of their streams``. Only a client that may do everything can name another owner."""
    arity(arguments, 1, 2)
    principal = connection.known_principal()
    owner = principal.owner if len(arguments) == 1 else text(arguments[1])
    if owner != principal.owner and not principal.is_root:
        raise LmqError("forbidden", f"token {principal.name!r} may end its own jobs only")
    return await jobs.end(texts(arguments[0], PUSH_COUNT_MAX), owner)


async def _jobs(jobs: Jobs, connection: Connection, arguments: Arguments) -> list[dict[str, Any]]:
    """``jobs() -> [{owner, name, streams, messages, note_bytes, idle_s, finished_epoch, open_epoch, unclaimed}]``.

    Returns the client's jobs, or those of all owners for a token that may do everything.
    """
    arity(arguments, 0, 0)
    principal = connection.known_principal()
    return [asdict(one) for one in await jobs.show(None if principal.is_root else principal.owner, connection.client())]


def _add_options(rows: list[list[Any]], value: object, sender: CommandSender) -> None:
    if value is None:
        return
    if type(value) is not list or len(value) != len(rows):
        raise LmqError("bad_arguments", "options must be a list with a map or nil for each content")
    for row, one in zip(rows, value, strict=True):
        wanted = {} if one is None else given(one, MESSAGE_OPTIONS)
        row[-1] = attributes_of(wanted, sender.attribute_bytes_max)
        delivery = push_options(wanted)
        if delivery is not None:
            row.append(delivery.row(sender.due_times))


JOB_METHODS: dict[bytes, Handler] = {
    b"push_marked": _slow(_push_marked),
    b"begin_epoch": _slow(_begin_epoch),
    b"finish_epoch": _slow(_finish_epoch),
    b"mark": _slow(_mark, large=True),
    b"end_jobs": _slow(_end_jobs),
    b"jobs": _slow(_jobs, large=True),
}
