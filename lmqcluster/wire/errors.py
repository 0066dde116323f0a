"""All error codes, and the table that maps them to every protocol.

Each error has a stable ``code`` and states whether a retry is safe and whether the operation took effect. An unknown
outcome is a separate value, which reaches the user unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ERRORS", "ErrorSpec", "LmqError", "Outcome", "forget_frames"]


class Outcome(StrEnum):
    """The effect of an operation that failed."""

    NOT_APPLIED = "not_applied"
    APPLIED = "applied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """The form of one error code on each protocol.

    Attributes:
        http: HTTP status.
        rpc: text of the MessagePack-RPC error element; ``None`` sends ``code: message``.
        exit_code: exit status of the command-line tools (sysexits) if a retry does not help.
        retryable: true if sending the same request again is safe and may succeed.
        outcome: effect of the operation.
        title: short description for people, the same for every occurrence.
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
    "unknown_method": ErrorSpec(404, "undef", 2, False, _NO, "No method with this name and number of arguments exists"),
    "unauthorized": ErrorSpec(401, None, 77, False, _NO, "The token is missing or wrong"),
    "forbidden": ErrorSpec(403, None, 77, False, _NO, "The token does not allow this operation"),
    "unknown_host": ErrorSpec(421, None, 77, False, _NO, "The request names a host that this node does not serve"),
    "foreign_origin": ErrorSpec(403, None, 77, False, _NO, "The request comes from a web page of another origin"),
    "token_not_found": ErrorSpec(404, None, 66, False, _NO, "The token does not exist"),
    "not_found": ErrorSpec(404, "throw:not_found", 66, False, _NO, "The message does not exist or is not leased"),
    "lease_expired": ErrorSpec(410, None, 66, False, _NO, "The batch lease has expired or was abandoned"),
    "subscription_not_found": ErrorSpec(404, None, 66, False, _NO, "The subscription does not exist"),
    "job_not_found": ErrorSpec(404, None, 66, False, _NO, "The job does not exist"),
    "batch_not_found": ErrorSpec(404, None, 66, False, _NO, "The subscription has no such batch"),
    "queue_not_found": ErrorSpec(404, "throw:queue_not_found", 66, False, _NO, "The queue does not exist"),
    "schedule_not_found": ErrorSpec(404, None, 66, False, _NO, "The schedule does not exist"),
    "task_not_found": ErrorSpec(404, None, 66, False, _NO, "The task does not exist or has ended"),
    "conflict": ErrorSpec(409, None, 65, True, _NO, "The request conflicts with another one in progress"),
    "fenced": ErrorSpec(409, None, 65, False, _NO, "A later consumer has claimed the subscription"),
    "out_of_sequence": ErrorSpec(409, None, 65, False, _NO, "The writer's position is not the next one of its stream"),
    "epoch_conflict": ErrorSpec(
        409, None, 65, False, _NO, "The writer's epoch belongs to another run or to other rows"
    ),
    "key_reused": ErrorSpec(422, None, 65, False, _NO, "The idempotency key was used with another body"),
    "full": ErrorSpec(507, None, 69, True, _NO, "The queue is full"),
    "stored_in_part": ErrorSpec(507, None, 65, False, Outcome.UNKNOWN, "Only some of the messages are stored"),
    "lease_lost": ErrorSpec(409, None, 66, False, _NO, "A message is no longer leased; nothing was changed"),
    "suspended": ErrorSpec(503, None, 69, True, _NO, "Requests of this kind are suspended for the queue"),
    "session_lost": ErrorSpec(409, None, 66, False, _NO, "The session has ended and released everything that it held"),
    "exclusive": ErrorSpec(409, None, 65, False, _NO, "The queue is exclusive: only one session at a time can pull"),
    "quota_exceeded": ErrorSpec(429, None, 69, True, _NO, "The client has reached a quota"),
    "too_large": ErrorSpec(413, None, 65, False, _NO, "The message or request is too large"),
    "overloaded": ErrorSpec(503, None, 69, True, _NO, "The node is at a limit, or cannot read a body from disk now"),
    "throttled": ErrorSpec(429, None, 69, True, _NO, "The client sends too many requests"),
    "no_leader": ErrorSpec(503, None, 69, True, _NO, "The cluster has no leader that this node can reach"),
    "shutting_down": ErrorSpec(503, None, 69, True, _NO, "The node is shutting down"),
    "left_cluster": ErrorSpec(503, None, 69, True, _NO, "The node is no longer a member of a cluster"),
    "unreachable": ErrorSpec(503, None, 69, True, _NO, "The node cannot be reached"),
    "unknown_outcome": ErrorSpec(504, None, 75, False, Outcome.UNKNOWN, "The outcome of the operation is unknown"),
    "internal": ErrorSpec(500, None, 70, False, Outcome.UNKNOWN, "A bug in lmqcluster"),
}
"""All error codes. Codes are stable: scripts may match them."""


class LmqError(Exception):
    """An error with a stable code.

    Attributes:
        code: a key of `ERRORS`.
        message: one or two sentences: what failed, where, why, and what to do.
        retryable: true if the same request may be sent again.
        outcome: effect of the operation.
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
        """Return a copy of the error without a traceback.

        A raised error references every frame that it passed, and each `raise` adds more. Never raise an error that an
        attribute, a variable or a future keeps, and never keep one that was raised: raise or keep a copy.
        """
        return LmqError(self.code, self.message, retryable=self.retryable, outcome=self.outcome)

    @property
    def spec(self) -> ErrorSpec:
        """Return the row of the table for this error."""
        return ERRORS[self.code]

    def rpc_text(self) -> str:
        """Return the error element of a MessagePack-RPC response."""
        return self.spec.rpc or f"{self.code}: {self.message}"


def forget_frames(error: BaseException) -> None:
    """Remove the tracebacks of an error and of its causes after the error has been answered.

    A future or a local variable of one of these frames may reference the error. The cycle would keep the frames, and the
    request in them, until the next run of the garbage collector.
    """
    last: BaseException | None = error
    while last is not None:
        last.__traceback__ = None
        behind = last.__cause__ or last.__context__
        last.__cause__ = last.__context__ = None
        last = behind
