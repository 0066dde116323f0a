"""Names and other texts of messages as strings of Spark, which hold Unicode only.

A cluster keeps queue names, content types, headers, groups and labels as bytes. In a column each byte that is not part of UTF-8
is the private character U+EF00 + byte, so that 0xFF is U+EFFF and any other text is what it is. What is written is turned
back, and no byte is lost. For that, such a private character (U+EF80 to U+EFFF) that a message holds is read as its three bytes.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

__all__ = ["column_text", "message_text", "text_bytes"]

_PRIVATE: Final = 0xEF00
_ESCAPED: Final = 0xDC00
"""Where the surrogates begin that stand for bytes in the client's texts."""
_ODD: Final = range(0x80, 0x100)
_TO_COLUMN: Final[dict[int, int | str]] = {
    **{_ESCAPED + byte: _PRIVATE + byte for byte in _ODD},
    **{_PRIVATE + byte: "".join(chr(_PRIVATE + one) for one in chr(_PRIVATE + byte).encode()) for byte in _ODD},
}
_TO_MESSAGE: Final = {_PRIVATE + byte: _ESCAPED + byte for byte in _ODD}


def column_text(text: bytes | str) -> str:
    """Return what a column shows of a text, given as its bytes or as the client shows it (with surrogate escapes)."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return text if text.isascii() else text.translate(_TO_COLUMN)


def message_text(text: str) -> str:
    """Return the text that `column_text` has shown, as the client takes it (with surrogate escapes)."""
    return text if text.isascii() else text.translate(_TO_MESSAGE)


def text_bytes(text: Column) -> Column:
    """Return how many bytes the text that a column shows has in a message."""
    return F.octet_length(F.regexp_replace(text, "[\uef80-\uefff]", "_"))
