"""Ids of open reads for Thrift clients: 48 bits for the delivery number, 15 bits for the incarnation of the cluster."""

from __future__ import annotations

from ...wire.ids import DELIVERY_NUMBER_MAX, ReceiptFormat

__all__ = ["id_of", "receipt_of"]

_NUMBER_BITS = 48
_LIFE_MASK = 0x7FFF


def _life(receipts: ReceiptFormat) -> int:
    return int.from_bytes(receipts.salt[:2], "big") & _LIFE_MASK


def id_of(receipts: ReceiptFormat, delivery: int) -> int:
    """Return the id of a delivery number. Ids are positive."""
    return _life(receipts) << _NUMBER_BITS | delivery


def receipt_of(receipts: ReceiptFormat, number: int) -> bytes | None:
    """Return the receipt of an id; None if the id is not from this incarnation of the cluster."""
    found = number & DELIVERY_NUMBER_MAX
    return receipts.format(found) if found and number >> _NUMBER_BITS == _life(receipts) else None
