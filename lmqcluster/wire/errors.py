"""The one error tree and the one table that maps it to every protocol.

Every error has a stable ``code``, says whether a retry is safe, and says whether the operation happened.
"I do not know" is an outcome of its own and travels all the way to the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ERRORS", "ErrorSpec", "LmqError", "Outcome", "forget_frames"]


class Outcome(StrEnum):
    """Whether the operation that failed has taken effect."""

    NOT_APPLIED = "not_applied"
    APPLIED = "applied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """How one error code appears on each protocol.

    Attributes:
        http: HTTP status.
        rpc: text of the MessagePack-RPC error element; ``None`` sends ``code: message``.
        exit_code: exit status of the command-line tools (sysexits) where a retry does not help.
        retryable: whether sending the same request again is safe and may succeed.
        outcome: what is known of the operation.
        title: a short human name, the same for every occurrence.
    """

    http: int
    rpc: str | None
    exit_code: int
    retryable: bool
    outcome: Outcome
    title: str


_NO = Outcome.NOT_APPLIED

ERRORS: dict[str, ErrorSpec] = {
    "bad_request": ErrorSpec(400, None, 65, False, _NO, "The request is malformed"),
    "bad_name": ErrorSpec(400, None, 65, False, _NO, "The queue name is not allowed"),
    "bad_pattern": ErrorSpec(400, "throw:invalid_regexp", 65, False, _NO, "The regular expression is invalid"),
    "bad_property": ErrorSpec(400, "throw:invalid", 65, False, _NO, "The property or rule is invalid"),
    "bad_arguments": ErrorSpec(400, "function_clause", 65, False, _NO, "An argument has the wrong type"),
    "unknown_method": ErrorSpec(404, "undef", 2, False, _NO, "There is no such method with so many arguments"),
    "unauthorized": ErrorSpec(401, None, 77, False, _NO, "A token is missing or wrong"),
    "forbidden": ErrorSpec(403, None, 77, False, _NO, "The token does not allow this"),
    "unknown_host": ErrorSpec(421, None, 77, False, _NO, "The request names a host that this node does not answer for"),
    "foreign_origin": ErrorSpec(403, None, 77, False, _NO, "The request was sent for a web page from elsewhere"),
    "token_not_found": ErrorSpec(404, None, 66, False, _NO, "There is no such token"),
    "not_found": ErrorSpec(404, "throw:not_found", 66, False, _NO, "There is no such message under lease"),
    "lease_expired": ErrorSpec(410, None, 66, False, _NO, "The batch lease has ended"),
    "subscription_not_found": ErrorSpec(404, None, 66, False, _NO, "There is no such subscription"),
    "job_not_found": ErrorSpec(404, None, 66, False, _NO, "There is no such job of a writer"),
    "batch_not_found": ErrorSpec(404, None, 66, False, _NO, "The subscription has no such batch"),
    "queue_not_found": ErrorSpec(404, "throw:queue_not_found", 66, False, _NO, "There is no such queue"),
    "conflict": ErrorSpec(409, None, 65, True, _NO, "The request conflicts with one under way"),
    "fenced": ErrorSpec(409, None, 65, False, _NO, "A later consumer has taken over the subscription"),
    "out_of_sequence": ErrorSpec(409, None, 65, False, _NO, "The writer's position is not the next one of its stream"),
    "epoch_conflict": ErrorSpec(409, None, 65, False, _NO, "Another run or other rows belong to the writer's epoch"),
    "key_reused": ErrorSpec(422, None, 65, False, _NO, "The idempotency key was used for another body"),
    "full": ErrorSpec(507, None, 69, True, _NO, "The queue is full"),
    "stored_in_part": ErrorSpec(507, None, 65, False, Outcome.UNKNOWN, "Only a part of the messages is stored"),
    "lease_lost": ErrorSpec(409, None, 66, False, _NO, "A message is not leased any more, so nothing was done"),
    "suspended": ErrorSpec(503, None, 69, True, _NO, "Such requests are suspended for the queue"),
    "session_lost": ErrorSpec(409, None, 66, False, _NO, "The session has ended, and what it held with it"),
    "exclusive": ErrorSpec(409, None, 65, False, _NO, "The queue is exclusive: one session at a time pulls from it"),
    "quota_exceeded": ErrorSpec(429, None, 69, True, _NO, "As much is kept for the client as may be"),
    "too_large": ErrorSpec(413, None, 65, False, _NO, "The message or request is too large"),
    "overloaded": ErrorSpec(
        503, None, 69, True, _NO, "The node is at a limit, or cannot read a body from its disk now"
    ),
    "throttled": ErrorSpec(429, None, 69, True, _NO, "The client sends more requests than it may"),
    "no_leader": ErrorSpec(503, None, 69, True, _NO, "The cluster has no leader that this node can reach"),
    "shutting_down": ErrorSpec(503, None, 69, True, _NO, "The node is shutting down"),
    "left_cluster": ErrorSpec(503, None, 69, True, _NO, "The node belongs to no cluster any more"),
    "unreachable": ErrorSpec(503, None, 69, True, _NO, "The node cannot be reached"),
    "unknown_outcome": ErrorSpec(
        504, None, 75, False, Outcome.UNKNOWN, "It is not known whether the operation was applied"
    ),
    "internal": ErrorSpec(500, None, 70, False, Outcome.UNKNOWN, "A bug in lmqcluster"),
}
"""Every error code of the project. Codes are stable: scripts may match them."""


class LmqError(Exception):
    """An error with a stable code.

    Attributes:
        code: a key of `ERRORS`.
        message: what failed, where, why, and what to do, in one sentence or two.
        retryable: whether the same request may be sent again.
        outcome: whether the operation happened.
    """

    def __init__(
        self, code: str, message: str, *, retryable: bool | None = None, outcome: Outcome | None = None
    ) -> None:
        super().__init__(message)
        spec = ERRORS[code]
        self.code = code
        self.message = message
        self.retryable = spec.retryable if retryable is None else retryable
        self.outcome = spec.outcome if outcome is None else outcome

    def again(self) -> LmqError:
        """Return an error that says the same and keeps no frames.

        An error that was raised keeps every frame that it has left, and each `raise` adds more. So one that stays, in an
        attribute, a variable or a future, is never raised itself, and none that was raised stays.
        """
        return LmqError(self.code, self.message, retryable=self.retryable, outcome=self.outcome)

    @property
    def spec(self) -> ErrorSpec:
        """The row of the table for this error."""
        return ERRORS[self.code]

    def rpc_text(self) -> str:
        """The error element of a MessagePack-RPC response."""
        return self.spec.rpc or f"{self.code}: {self.message}"


def forget_frames(error: BaseException) -> None:
    """Release the frames that an error keeps, and those of the errors behind it, because the error has been answered.

    A future or a local variable of one of these frames may hold the error in turn. Without this they would stay, with the
    request in them, until the garbage collector finds the cycle.
    """
    last: BaseException | None = error
    while last is not None:
        last.__traceback__ = None
        behind = last.__cause__ or last.__context__
        last.__cause__ = last.__context__ = None
        last = behind
