"""Sends that repeat an earlier one of their connection, see `SendPattern`.

The port begins them without parsing and routing. It handles every other request in full, and also these if it would refuse
them, or once the rights of the client have changed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...wire.errors import LmqError
from ..http.server.requests.json_body import parse_json
from .errors import as_sqs
from .json_codec import json_parameters, json_refusal, json_reply
from .names import url_queue
from .request_ids import new_id

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ..http.server.replies.reply import Reply
    from .call import Tools
    from .send_actions import BegunSend, Results, SendActions, Sender
    from .send_patterns import SendPattern
    from .signature import Claim, Signatures

__all__ = ["RepeatedSend"]


class RepeatedSend:
    """A send that later requests of its connection may repeat, with other messages to the same queue.

    Args:
        pattern: recognizes them.
        sender: what they have in common.
        signed: its signature, and what checks it; None for a client without one.
        is_allowed: returns whether the client may still send.
        actions: carries out sends.
        tools: finds queues.

    Attributes:
        code: the code of the error of the last answer, empty if it was a success.
    """

    __slots__ = ("_actions", "_begun", "_is_allowed", "_pattern", "_sender", "_signed", "_tools", "code")

    def __init__(
        self,
        pattern: SendPattern,
        sender: Sender,
        signed: tuple[Claim, Signatures] | None,
        *,
        is_allowed: Callable[[], bool],
        actions: SendActions,
        tools: Tools,
    ) -> None:
        self._pattern = pattern
        self._sender = sender
        self._signed = signed
        self._is_allowed = is_allowed
        self._actions = actions
        self._tools = tools
        self._begun: BegunSend | None = None
        self.code = ""

    def begin(self, data: bytes) -> asyncio.Future[Results] | None:
        """Begin a repetition; return the future of its results, None if it must be handled in full."""
        found = self._pattern.match(data)
        if found is None or not self._is_allowed():
            return None
        values, body = found
        try:
            if self._signed is not None:
                claim, signatures = self._signed
                renewed = signatures.renewed(claim, *self._pattern.signature(values), time.time())
                signatures.verify(renewed, body)
            sender = self._sender._replace(invocation=self._pattern.invocation(values))
            given = json_parameters(sender.action, parse_json(body))
            facts = self._tools.known(sender.queue)
            if facts is None or url_queue(given.get("QueueUrl")) != sender.queue:
                return None
            self._begun = self._actions.begin(facts, sender, given)
        except LmqError:
            return None
        return self._begun.outcome

    def reply(self, outcome: Results | LmqError) -> Reply:
        """Return the answer for the results of a send, or for its error."""
        self.code = ""
        begun, self._begun = self._begun, None
        assert begun is not None  # noqa: S101 - for the type checker
        try:
            if isinstance(outcome, LmqError):
                raise outcome.again()
            return json_reply(begun.output(outcome), new_id())
        except LmqError as exc:
            error = as_sqs(exc)
            self.code = error.kind.code
            return json_refusal(error, new_id())
