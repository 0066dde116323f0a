"""Errors as clients of SQS know them: a shape, which SDKs make an exception of, a code, and a status."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...wire.errors import ERRORS, LmqError

__all__ = [
    "ACCESS_DENIED", "BATCH_IDS_REPEATED", "BATCH_TOO_LONG", "EMPTY_BATCH", "INCOMPLETE_SIGNATURE", "INTERNAL_FAILURE",
    "INVALID_ACTION", "INVALID_ATTRIBUTE_NAME", "INVALID_ATTRIBUTE_VALUE", "INVALID_BATCH_ID", "INVALID_CLIENT_TOKEN",
    "INVALID_CONTENTS", "INVALID_RECEIPT", "INVALID_VALUE", "MISSING_PARAMETER", "MISSING_TOKEN", "OVER_LIMIT",
    "QUEUE_EXISTS", "QUEUE_MISSING", "RESOURCE_NOT_FOUND", "SERIALIZATION", "SIGNATURE_MISMATCH", "THROTTLED",
    "TOO_MANY_ENTRIES", "UNAVAILABLE", "UNKNOWN_OPERATION", "UNSUPPORTED", "ErrorKind", "SqsError", "as_sqs",
    "invalid_value", "missing", "queue_missing", "value_error",
]  # fmt: skip

_PREFIX: Final = "AWS.SimpleQueueService."
_SHOWN_CHARACTERS_MAX: Final = 1024
"""Longest value that the text of an error repeats: that of a receipt handle."""


class ErrorKind(NamedTuple):
    """A kind of error.

    Attributes:
        shape: the name that the service's model gives it.
        code: the name that the older protocol gives it.
        status: HTTP status.
    """

    shape: str
    code: str
    status: int

    @property
    def short_code(self) -> str:
        """Return the code of a failed entry of a batch."""
        return self.code.removeprefix(_PREFIX)

    @property
    def fault(self) -> str:
        """Return whose fault it is: ``Sender`` or ``Receiver``."""
        return "Receiver" if self.status >= 500 else "Sender"


QUEUE_MISSING: Final = ErrorKind("QueueDoesNotExist", f"{_PREFIX}NonExistentQueue", 400)
QUEUE_EXISTS: Final = ErrorKind("QueueNameExists", "QueueAlreadyExists", 400)
INVALID_ATTRIBUTE_NAME: Final = ErrorKind("InvalidAttributeName", "InvalidAttributeName", 400)
INVALID_ATTRIBUTE_VALUE: Final = ErrorKind("InvalidAttributeValue", "InvalidAttributeValue", 400)
INVALID_VALUE: Final = ErrorKind("InvalidParameterValueException", "InvalidParameterValue", 400)
MISSING_PARAMETER: Final = ErrorKind("MissingRequiredParameterException", "MissingParameter", 400)
INVALID_CONTENTS: Final = ErrorKind("InvalidMessageContents", "InvalidMessageContents", 400)
INVALID_RECEIPT: Final = ErrorKind("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 400)
EMPTY_BATCH: Final = ErrorKind("EmptyBatchRequest", f"{_PREFIX}EmptyBatchRequest", 400)
TOO_MANY_ENTRIES: Final = ErrorKind("TooManyEntriesInBatchRequest", f"{_PREFIX}TooManyEntriesInBatchRequest", 400)
BATCH_IDS_REPEATED: Final = ErrorKind("BatchEntryIdsNotDistinct", f"{_PREFIX}BatchEntryIdsNotDistinct", 400)
BATCH_TOO_LONG: Final = ErrorKind("BatchRequestTooLong", f"{_PREFIX}BatchRequestTooLong", 400)
INVALID_BATCH_ID: Final = ErrorKind("InvalidBatchEntryId", f"{_PREFIX}InvalidBatchEntryId", 400)
UNSUPPORTED: Final = ErrorKind("UnsupportedOperation", f"{_PREFIX}UnsupportedOperation", 400)
OVER_LIMIT: Final = ErrorKind("OverLimit", "OverLimit", 403)
THROTTLED: Final = ErrorKind("RequestThrottled", "RequestThrottled", 403)
RESOURCE_NOT_FOUND: Final = ErrorKind("ResourceNotFoundException", "ResourceNotFoundException", 404)
UNKNOWN_OPERATION: Final = ErrorKind("UnknownOperationException", "UnknownOperationException", 400)
INVALID_ACTION: Final = ErrorKind("InvalidAction", "InvalidAction", 400)
SERIALIZATION: Final = ErrorKind("SerializationException", "SerializationException", 400)
MISSING_TOKEN: Final = ErrorKind("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403)
INVALID_CLIENT_TOKEN: Final = ErrorKind("UnrecognizedClientException", "InvalidClientTokenId", 403)
SIGNATURE_MISMATCH: Final = ErrorKind("InvalidSignatureException", "SignatureDoesNotMatch", 403)
INCOMPLETE_SIGNATURE: Final = ErrorKind("IncompleteSignatureException", "IncompleteSignature", 400)
ACCESS_DENIED: Final = ErrorKind("AccessDeniedException", "AccessDenied", 403)
UNAVAILABLE: Final = ErrorKind("ServiceUnavailable", "ServiceUnavailable", 503)
INTERNAL_FAILURE: Final = ErrorKind("InternalFailure", "InternalFailure", 500)


class SqsError(LmqError):
    """A refusal.

    Attributes:
        kind: shape, code and status.
        status: HTTP status, that of the kind unless it is given.
    """

    def __init__(self, kind: ErrorKind, message: str, status: int | None = None) -> None:
        super().__init__("bad_request", message)
        self.kind = kind
        self.status = kind.status if status is None else status

    def again(self) -> SqsError:
        """Return a copy of the error without a traceback."""
        return SqsError(self.kind, self.message, self.status)


_KINDS: Final = {
    "bad_request": SERIALIZATION,
    "unauthorized": ACCESS_DENIED,
    "forbidden": ACCESS_DENIED,
    "unknown_host": ACCESS_DENIED,
    "foreign_origin": ACCESS_DENIED,
    "queue_not_found": QUEUE_MISSING,
    "full": OVER_LIMIT,
    "quota_exceeded": OVER_LIMIT,
    "throttled": THROTTLED,
    "exclusive": UNSUPPORTED,
    "unknown_outcome": INTERNAL_FAILURE,
    "internal": INTERNAL_FAILURE,
}
_OWN_STATUS: Final = {"unknown_host": 421}
"""Statuses that say more than those of their kinds."""
QUEUE_MISSING_TEXT: Final = "The specified queue does not exist."


def as_sqs(error: LmqError) -> SqsError:
    """Return an error as clients of SQS know it."""
    if isinstance(error, SqsError):
        return error
    if error.code == "queue_not_found":
        return queue_missing()
    kind = _KINDS.get(error.code)
    if kind is None:
        kind = UNAVAILABLE if ERRORS[error.code].http == 503 else INVALID_VALUE
    return SqsError(kind, error.message, _OWN_STATUS.get(error.code))


def queue_missing() -> SqsError:
    """Return the error for a queue that does not exist."""
    return SqsError(QUEUE_MISSING, QUEUE_MISSING_TEXT)


def invalid_value(text: str) -> SqsError:
    """Return the error for a wrong value, with its own text."""
    return SqsError(INVALID_VALUE, text)


def value_error(value: object, name: str, reason: str) -> SqsError:
    """Return the error for a wrong value of a parameter."""
    shown = str(value)[:_SHOWN_CHARACTERS_MAX]
    return SqsError(INVALID_VALUE, f"Value {shown} for parameter {name} is invalid. Reason: {reason}")


def missing(name: str) -> SqsError:
    """Return the error for a parameter that is not there."""
    return SqsError(MISSING_PARAMETER, f"The request must contain the parameter {name}.")
