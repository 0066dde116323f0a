"""Sends that repeat an earlier one of their connection, see `SendPattern`.

The port begins them without parsing and routing. It handles every other request in full, and also these if it would refuse
them, or once the rights of the client have changed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...core import PushFlag
from ...node.queues.sending.push_items import refusal_of
from ...wire.errors import LmqError
from ..http.server.replies.reply import Reply
from ..http.server.requests.json_body import parse_json
from .errors import as_sqs
from .json_codec import json_head, json_refusal
from .request_ids import new_id

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from .receipts import Receipts
    from .send_actions import PlainSend, SendActions
    from .send_patterns import SendPattern
    from .signature import Claim, Signatures

__all__ = ["RepeatedSend"]

_MEMBERS = 2


class RepeatedSend:
    """A plain send that later requests of its connection may repeat.

    Args:
        pattern: recognizes them.
        send: the send.
        signed: its signature, and what checks it; None for a client without one.
        is_allowed: returns whether the client may still send.
        actions: carries out sends.
        receipts: makes ids of messages.

    Attributes:
        code: the code of the error of the last answer, empty if it was a success.
    """

    __slots__ = ("_actions", "_is_allowed", "_md5", "_pattern", "_receipts", "_send", "_signed", "code")

    def __init__(
        self,
        pattern: SendPattern,
        send: PlainSend,
        signed: tuple[Claim, Signatures] | None,
        *,
        is_allowed: Callable[[], bool],
        actions: SendActions,
        receipts: Receipts,
    ) -> None:
        self._pattern = pattern
        self._send = send
        self._signed = signed
        self._is_allowed = is_allowed
        self._actions = actions
        self._receipts = receipts
        self._md5 = ""
        self.code = ""

    def begin(self, data: bytes) -> asyncio.Future[Any] | None:
        """Begin a repetition; return the future of its flag and sequence, None if it must be handled in full.

        Raises:
            LmqError: like `AttemptedPushes.push`.
        """
        found = self._pattern.match(data)
        if found is None or not self._is_allowed():
            return None
        values, body = found
        try:
            if self._signed is not None:
                claim, signatures = self._signed
                renewed = signatures.renewed(claim, *self._pattern.signature(values), time.time())
                signatures.verify(renewed, body)
            given = parse_json(body)
        except LmqError:
            return None
        if type(given) is not dict or len(given) != _MEMBERS or given.get("QueueUrl") != self._send.url:
            return None
        text = given.get("MessageBody")
        begun = self._actions.begin(self._send, text, self._pattern.invocation(values)) if type(text) is str else None
        if begun is None:
            return None
        self._md5 = begun.md5
        return begun.outcome

    def reply(self, outcome: list[tuple[int, int]] | LmqError) -> Reply:
        """Return the answer for the flag and sequence of a send, or for its error."""
        self.code = ""
        try:
            if isinstance(outcome, LmqError):
                raise outcome.again()
            ((flag, sequence),) = outcome
            if flag >= PushFlag.FULL:
                raise refusal_of(self._send.queue, flag)
            text = f'{{"MessageId": "{self._receipts.message_id(sequence)}", "MD5OfMessageBody": "{self._md5}"}}'
            return Reply(200, json_head(new_id()), text.encode("ascii"))
        except LmqError as exc:
            error = as_sqs(exc)
            self.code = error.kind.code
            return json_refusal(error, new_id())
