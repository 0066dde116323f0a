"""Receipt handles and ids of messages.

A receipt handle names a message of a queue, the tag of its delivery and the time of that. The check value makes handles of
other queues, and of the cluster before a restore, invalid.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from ...wire.ids import ReceiptFormat
from .errors import INVALID_RECEIPT, SqsError, missing

__all__ = ["Receipt", "Receipts"]

_LAYOUT: Final = struct.Struct(">B4sQII")
_VERSION: Final = 1
_CHECK_BYTES: Final = 4
_SALT_BYTES: Final = 10
_HANDLE_CHARACTERS_MAX: Final = 1024


class Receipt(NamedTuple):
    """A delivery that a client names.

    Attributes:
        message: sequence of the message.
        tag: tag of the delivery.
        received_s: Unix time of the delivery in whole seconds.
    """

    message: int
    tag: int
    received_s: int


class Receipts:
    """Makes and reads receipt handles, and makes ids of messages.

    Args:
        receipts: returns the format of ids in this cluster life; raises ``no_leader``.
    """

    def __init__(self, receipts: Callable[[], ReceiptFormat]) -> None:
        self._receipts = receipts
        self._made_for = b""
        self._prefix = ""

    def message_id(self, sequence: int) -> str:
        """Return the id of the message whose first push had this sequence: a UUID."""
        return f"{self.message_prefix()}{sequence:012x}"

    def message_prefix(self) -> str:
        """Return the beginning of all ids of messages; 12 hexadecimal digits of the sequence follow."""
        salt = self._receipts().salt
        if self._made_for != salt:
            own = blake2b(b"messages", key=salt, digest_size=_SALT_BYTES).digest()
            self._prefix, self._made_for = ReceiptFormat(own).prefix.decode("ascii"), salt
        return self._prefix

    def handle(self, queue: bytes, receipt: Receipt) -> str:
        """Return the receipt handle of a delivery."""
        packed = _LAYOUT.pack(_VERSION, _check_of(self._receipts().salt, queue), *receipt)
        return base64.urlsafe_b64encode(packed).decode("ascii")

    def parse(self, queue: bytes, handle: str | None) -> Receipt:
        """Return the delivery that a receipt handle names.

        Raises:
            SqsError: ``MissingParameter``, ``ReceiptHandleIsInvalid``.
        """
        if not handle:
            raise missing("ReceiptHandle")
        try:
            given = handle.replace("-", "+").replace("_", "/") if len(handle) <= _HANDLE_CHARACTERS_MAX else ""
            version, check, *receipt = _LAYOUT.unpack(binascii.a2b_base64(given, strict_mode=True))
        except (binascii.Error, ValueError, struct.error):
            version, check, receipt = 0, b"", []
        # A message that was never delivered has the tag 0.
        if version != _VERSION or check != _check_of(self._receipts().salt, queue) or not receipt[1]:
            shown = handle[:_HANDLE_CHARACTERS_MAX]
            raise SqsError(INVALID_RECEIPT, f'The input receipt handle "{shown}" is not a valid receipt handle.')
        return Receipt(*receipt)


@lru_cache(maxsize=1_024)
def _check_of(salt: bytes, queue: bytes) -> bytes:
    return blake2b(queue, key=salt, digest_size=_CHECK_BYTES).digest()
