"""The characters that XML 1.0 can carry, to which clients of SQS are limited."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_xml_text"]

_ILLEGAL: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_xml_text(text: str) -> bool:
    """Return whether XML can carry a text."""
    # A printable text has no other character, and that is faster to find out.
    return text.isprintable() or not _ILLEGAL.search(text)
