"""Ids of open reads as Thrift clients see them: 48 bits number the delivery, 15 bits tell the lives of a cluster apart."""

from __future__ import annotations

from ...wire.ids import DELIVERY_NUMBER_MAX, ReceiptFormat

__all__ = ["id_of", "receipt_of"]

_NUMBER_BITS = 48
_LIFE_MASK = 0x7FFF


def _life(receipts: ReceiptFormat) -> int:
    return int.from_bytes(receipts.salt[:2], "big") & _LIFE_MASK


def id_of(receipts: ReceiptFormat, delivery: int) -> int:
    """The id of a delivery by its number, positive."""
    return _life(receipts) << _NUMBER_BITS | delivery


def receipt_of(receipts: ReceiptFormat, number: int) -> bytes | None:
    """The delivery of an id; None if it cannot be one of this life of the cluster."""
    found = number & DELIVERY_NUMBER_MAX
    return receipts.format(found) if found and number >> _NUMBER_BITS == _life(receipts) else None
