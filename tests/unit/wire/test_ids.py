"""Message ids: LMQ specification 2.4 and 8.2."""

from __future__ import annotations

import re
import uuid

import pytest

from lmqcluster.wire.ids import DELIVERY_NUMBER_MAX, ReceiptFormat

SALT = bytes.fromhex("0123456789abcdef0123")
NUMBERS = [1, 2, 9, 10, 255, 0xABCDEF, 2**32, DELIVERY_NUMBER_MAX]


@pytest.fixture
def receipts() -> ReceiptFormat:
    return ReceiptFormat(SALT)


@pytest.mark.parametrize("number", NUMBERS)
def test_an_id_is_a_lower_case_dashed_uuid_of_version_4(receipts: ReceiptFormat, number: int) -> None:
    """Spec 8.2 `x-lmq-message-id`, and 2.1: UUID v4."""
    text = receipts.format(number).decode()
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", text)
    assert uuid.UUID(text).version == 4
    assert uuid.UUID(text).variant == uuid.RFC_4122


@pytest.mark.parametrize("number", NUMBERS)
def test_ids_are_read_back(receipts: ReceiptFormat, number: int) -> None:
    """Spec 2.4: ids are accepted in upper case and without dashes too."""
    text = receipts.format(number)
    plain = text.replace(b"-", b"")
    mixed = text[:30].upper() + text[30:]
    assert [receipts.parse(form) for form in (text, text.upper(), plain, plain.upper(), mixed)] == [number] * 5


@pytest.mark.parametrize("salt", [bytes(10), b"\xff" * 10, SALT, bytes(range(10))])
def test_every_salt_gives_sound_ids(salt: bytes) -> None:
    receipts = ReceiptFormat(salt)
    text = receipts.format(77)
    assert uuid.UUID(text.decode()).version == 4
    assert receipts.parse(text) == 77
    assert receipts.parse(text.replace(b"-", b"").upper()) == 77


@pytest.mark.parametrize("length", [0, 9, 11, 16])
def test_a_salt_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="10 bytes"):
        ReceiptFormat(bytes(length))


def _malformed(text: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "short": text[:-1],
        "long": text + b"0",
        "no hexadecimal digit at the end": text[:-1] + b"g",
        "no hexadecimal digit in the middle": text[:26] + b"z" + text[27:],
        "no hexadecimal digit at the start": b"x" + text[1:],
        "underscore, which int() would take": text[:30] + b"_" + text[31:],
        "space, which int() would take": text[:24] + b" " + text[25:],
        "sign, which int() would take": text[:24] + b"+" + text[25:],
        "0x, which int() would take": text[:24] + b"0x" + text[26:],
        "dashes elsewhere": text[:7] + b"-" + text[7:8] + text[9:],
        "some dashes missing": text.replace(b"-", b"", 1),
        "braces": b"{" + text + b"}",
        "trailing newline": text[:-1] + b"\n",
        "not ASCII": text[:24] + "é".encode() + text[26:],
        "fullwidth digits": text[:24] + "\N{FULLWIDTH DIGIT ONE}".encode() * 4,
        "binary": bytes(36),
        "high bytes": b"\xff" * 36,
        "very long": text * 10_000,
        "number 0": text[:24] + b"0" * 12,
        "dashes instead of digits": b"-" * 36,
    }


@pytest.mark.parametrize("what", _malformed(b"0" * 36))
def test_a_malformed_id_is_unknown(receipts: ReceiptFormat, what: str) -> None:
    """Spec 2.4: a malformed id fails like an unknown one; 0 is the number of no delivery."""
    text = receipts.format(0x123456789ABC)
    for form in (_malformed(text)[what], _malformed(text)[what].upper()):
        assert receipts.parse(form) == 0


@pytest.mark.parametrize("position", range(36))
def test_any_other_prefix_is_unknown(receipts: ReceiptFormat, position: int) -> None:
    """An id of an earlier incarnation of the cluster never acknowledges a message of this one."""
    text = receipts.format(1)
    changed = text[:position] + (b"e" if text[position : position + 1] != b"e" else b"f") + text[position + 1 :]
    assert receipts.parse(changed) != 1
    assert ReceiptFormat(bytes(10)).parse(text) == 0
