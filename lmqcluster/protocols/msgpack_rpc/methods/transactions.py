"""The method that carries out several operations in one step, all or none of them."""

from __future__ import annotations

from typing import Any, Final

from ....core import Role
from ....core.handlers.transactions import OPERATIONS_MAX
from ....node.queues.pushes.transactions import AckStep, ExtendStep, NackStep, PushStep, Step
from ....node.queues.sending.push_items import Stored
from ....wire.errors import LmqError
from ..connection.connection import Connection, Handler
from ..values import replies
from ..values.arguments import arity, text
from ..values.options import flag_of, given, place_of, reason_of, seconds_of
from .pushes import whole_item_of

__all__ = ["TRANSACTION_METHODS"]

_NONE: Final[frozenset[bytes]] = frozenset()
_OPTIONS: Final = {
    b"done": _NONE,
    b"release": frozenset((b"place", b"delay", b"reason")),
    b"retain": frozenset((b"lease",)),
}
"""Options of the operations that settle a delivery."""


def _transaction(connection: Connection, msgid: Any, arguments: list[Any]) -> None:
    """``transaction([operation][, {again}]) -> [result]``."""
    arity(arguments, 1, 2)
    operations = arguments[0]
    if type(operations) is not list:
        raise LmqError("bad_arguments", "the operations must be a list")
    if len(operations) > OPERATIONS_MAX:
        reason = f"a transaction has at most {OPERATIONS_MAX} operations, this has {len(operations)}"
        raise LmqError("too_large", reason)
    again = len(arguments) == 2 and flag_of(given(arguments[1], {b"again"}), b"again")
    principal = connection.known_principal()
    steps: list[Step] = []
    for operation in operations:
        step = _step(operation, connection.service.sender.attribute_bytes_max)
        principal.require(Role.WRITE, step.queue)
        steps.append(step)
    if not steps:
        connection.succeed(msgid, replies.array_header(0))
        return
    outcome = connection.service.transaction(steps, connection.kept_for(), again=again)

    async def shown() -> bytes:
        results = await outcome
        texts = [replies.FLAG_TEXTS[one.flag & 3] if isinstance(one, Stored) else replies.OK for one in results]
        return replies.array_header(len(texts)) + b"".join(texts)

    connection.run(msgid, shown())


def _step(operation: Any, attribute_bytes_max: int) -> Step:
    """Return the step of an operation ``[verb, queue, content or id[, options]]``.

    Raises:
        LmqError: ``bad_arguments``, ``bad_request``.
    """
    if type(operation) is not list or not 3 <= len(operation) <= 4:
        raise LmqError("bad_arguments", "an operation must be [verb, queue, content or id, options or nil]")
    verb, queue, subject = text(operation[0]), text(operation[1]), operation[2]
    options = operation[3] if len(operation) == 4 else None
    if verb == b"push":
        return PushStep(queue, whole_item_of(subject, options, attribute_bytes_max))
    if verb not in _OPTIONS:
        raise LmqError(
            "bad_arguments", f"the verb of an operation must be push, {', '.join(map(bytes.decode, _OPTIONS))}"
        )
    wanted = {} if options is None else given(options, _OPTIONS[verb])
    receipt = text(subject)
    if verb == b"done":
        return AckStep(queue, receipt)
    if verb == b"release":
        return NackStep(queue, receipt, place_of(wanted), seconds_of(wanted, b"delay"), reason_of(wanted))
    return ExtendStep(queue, receipt, seconds_of(wanted, b"lease"))


TRANSACTION_METHODS: dict[bytes, Handler] = {b"transaction": _transaction}
