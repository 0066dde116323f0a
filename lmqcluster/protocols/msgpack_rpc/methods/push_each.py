"""``push_each``: pushes that share a request, each with its own outcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....core import PushFlag
from ....node.commit.proposer import PendingCommand
from ....node.queues.sending import requests
from ....node.queues.sending.push_items import refusal_of
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import CONTENT_TYPE, UnsupportedExtensionError, pack_raw
from ....wire.limits import PUSH_COUNT_MAX
from ..connection.connection import Connection
from ..values import replies
from ..values.arguments import arity, body_of, text

__all__ = ["push_each"]


def push_each(connection: Connection, msgid: Any, arguments: list[Any]) -> None:
    """``push_each(name, [content]) -> [result, ...]``.

    A result is that of ``push``, or an array with the text of its error. A content that cannot be stored does not
    affect the others.
    """
    first = connection.take_numbers(b"push_each", arguments)
    arity(arguments, 2, 2)
    name, contents = text(arguments[0]), arguments[1]
    if type(contents) is not list:
        raise LmqError("bad_arguments", "the contents must be a list")
    if len(contents) > PUSH_COUNT_MAX:
        raise LmqError("too_large", f"a request may push at most {PUSH_COUNT_MAX} messages, this has {len(contents)}")
    connection.service.sender.check_name(name, connection.kept_for())
    bodies = [_checked(connection, content) for content in contents]
    outcomes = _Outcomes(connection, msgid, name, bodies)
    for start, run in _runs(bodies):
        outcomes.propose(start, run, (first or 0) + start)
    outcomes.answer_if_complete()


def _checked(connection: Connection, content: Any) -> bytes | LmqError:
    """Return the body of a content, or the error if no queue could store it."""
    try:
        body = body_of(content)
        connection.service.sender.check_push(len(body))
    except UnsupportedExtensionError as exc:
        return LmqError("bad_arguments", str(exc))
    except LmqError as exc:
        if exc.code == "too_large":
            return exc.again()
        raise
    return body


def _runs(bodies: list[bytes | LmqError]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield runs of consecutive bodies, each with the position of its first. The numbers of one command have no gaps."""
    run: list[bytes] = []
    for place, body in enumerate(bodies):
        if isinstance(body, bytes):
            run.append(body)
        elif run:
            yield place - len(run), run
            run = []
    if run:
        yield len(bodies) - len(run), run


class _Outcomes:
    """Results of one request (`Sink`)."""

    def __init__(self, connection: Connection, msgid: Any, name: bytes, bodies: list[bytes | LmqError]) -> None:
        self._connection = connection
        self._msgid = msgid
        self._name = name
        self._results = [b"" if isinstance(body, bytes) else _refused(body) for body in bodies]
        self._missing = sum(isinstance(body, bytes) for body in bodies)

    def propose(self, start: int, bodies: list[bytes], number: int) -> None:
        """Send a run of bodies; `start` is the position of the first and `number` its number."""
        connection = self._connection
        producer, owner = connection.producer, connection.producer_owner
        request = requests.push_plain(self._name, CONTENT_TYPE, bodies, producer, number, owner)
        pending = PendingCommand(request.command, list(range(start, start + len(bodies))), self)
        try:
            connection.add(pending, request.size_bytes)
        except LmqError as exc:
            self.failed(pending, exc)

    def completed(self, pending: PendingCommand, flags: Any) -> None:
        """Record the results of a run that is stored, at least in part."""
        places, pending.requests = pending.requests, []
        if not places:
            return
        start, end = places[0], places[-1] + 1
        if any(flags):
            self._results[start:end] = [self._result(flag) for flag in flags]
        else:
            self._results[start:end] = [replies.OK] * len(places)
        self._count(len(places))

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Record the error of a run that is not stored or whose outcome is unknown."""
        self._connection.push_refused(error)
        places, pending.requests = pending.requests, []
        for place in places:
            self._results[place] = _refused(error)
        self._count(len(places))

    def _result(self, flag: int) -> bytes:
        return replies.FLAG_TEXTS[flag & 3] if flag < PushFlag.FULL else _refused(refusal_of(flag))

    def _count(self, known: int) -> None:
        self._missing -= known
        self.answer_if_complete()

    def answer_if_complete(self) -> None:
        """Answer once every result is known."""
        if not self._missing:
            self._missing = -1
            self._connection.succeed(self._msgid, replies.array_header(len(self._results)) + b"".join(self._results))


def _refused(error: LmqError) -> bytes:
    return b"\x91" + pack_raw(error.rpc_text().encode())
