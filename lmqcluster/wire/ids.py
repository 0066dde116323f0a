"""Message ids: the receipt of a delivery, shown as a lower-case UUID with dashes.

The state machine numbers deliveries 1, 2, 3, ... On the wire, the number is the last 48 bits of a UUID. The first 80 bits
identify the incarnation of the cluster, so that a receipt of an earlier incarnation cannot acknowledge a message.
"""

from __future__ import annotations

__all__ = ["DELIVERY_NUMBER_MAX", "ReceiptFormat"]

DELIVERY_NUMBER_MAX = (1 << 48) - 1
_ID_LENGTH = 36
_PREFIX_LENGTH = 24


class ReceiptFormat:
    """Translates delivery numbers to ids and back for one incarnation of the cluster."""

    __slots__ = ("_template", "prefix", "salt")

    def __init__(self, salt: bytes) -> None:
        """Create a format from the cluster's salt, exactly 10 bytes, which becomes the fixed part of a version 4 UUID."""
        if len(salt) != 10:
            raise ValueError(f"the salt of message ids must have 10 bytes, not {len(salt)}")
        self.salt = salt
        text = salt.hex()
        variant = "89ab"[salt[8] & 3]
        self.prefix = f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-".encode()
        self._template = self.prefix + b"%012x"

    @property
    def incarnation(self) -> bytes:
        """Return the common beginning of all ids of this incarnation, which names it."""
        return self.prefix[:-1]

    def format(self, number: int) -> bytes:
        """Return the id of delivery `number` (1 to 2**48 - 1), 36 ASCII bytes."""
        return self._template % number

    def parse(self, text: bytes) -> int:
        """Return the delivery number of an id, or 0 if it is malformed or of another incarnation.

        Accepts upper case and the form without dashes.
        """
        if text[:_PREFIX_LENGTH] == self.prefix and len(text) == _ID_LENGTH:
            return _hex(text[_PREFIX_LENGTH:])
        return self._parse_loose(text)

    def _parse_loose(self, text: bytes) -> int:
        plain = text.lower()
        if len(plain) == _ID_LENGTH:
            if any(plain[i : i + 1] != b"-" for i in (8, 13, 18, 23)):
                return 0
            plain = plain[:8] + plain[9:13] + plain[14:18] + plain[19:23] + plain[24:]
        prefix = self.prefix.replace(b"-", b"")
        if len(plain) != 32 or plain[:20] != prefix:
            return 0
        return _hex(plain[20:])


def _hex(digits: bytes) -> int:
    # int() alone would accept "_", signs and spaces.
    if not digits.isalnum() or b"x" in digits.lower():
        return 0
    try:
        return int(digits, 16)
    except ValueError:
        return 0
