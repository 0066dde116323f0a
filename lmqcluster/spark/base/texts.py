"""Names and other texts of messages as strings of Spark, which hold only Unicode.

A cluster stores queue names, content types, groups and labels as bytes. In a column, each byte that is not
part of UTF-8 becomes the private character U+EF00 + byte, so 0xFF becomes U+EFFF; any other text is unchanged. A write
reverses this, so no byte is lost. Therefore a private character in this range (U+EF80 to U+EFFF) that a message
contains is read as its three bytes.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

__all__ = ["column_text", "message_text", "text_bytes"]

_PRIVATE: Final = 0xEF00
_ESCAPED: Final = 0xDC00
"""The first surrogate that represents a byte in the client's texts."""
_ODD: Final = range(0x80, 0x100)
_TO_COLUMN: Final[dict[int, int | str]] = {
    **{_ESCAPED + byte: _PRIVATE + byte for byte in _ODD},
    **{_PRIVATE + byte: "".join(chr(_PRIVATE + one) for one in chr(_PRIVATE + byte).encode()) for byte in _ODD},
}
_TO_MESSAGE: Final = {_PRIVATE + byte: _ESCAPED + byte for byte in _ODD}


def column_text(text: bytes | str) -> str:
    """Return the column's form of a text, given as its bytes or in the client's form (with surrogate escapes)."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return text if text.isascii() else text.translate(_TO_COLUMN)


def message_text(text: str) -> str:
    """Return the client's form (with surrogate escapes) of a text from a column."""
    return text if text.isascii() else text.translate(_TO_MESSAGE)


def text_bytes(text: Column) -> Column:
    """Return the size in bytes that a column's text has in a message."""
    return F.octet_length(F.regexp_replace(text, "[\uef80-\uefff]", "_"))
