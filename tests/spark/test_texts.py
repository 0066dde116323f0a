"""Texts of messages in columns: no byte is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.spark.base.texts import column_text, message_text


def through(data: bytes) -> bytes:
    """Convert bytes to a column value and back, as the client sends it."""
    return message_text(column_text(data)).encode("utf-8", "surrogateescape")


@given(st.binary(max_size=40) | st.text(alphabet="a\uef80\uefff\uf000é€😀", max_size=20).map(str.encode))
def test_every_text_survives(data: bytes) -> None:
    shown = column_text(data)
    assert through(data) == data
    assert column_text(data.decode("utf-8", "surrogateescape")) == shown
    # Arrow accepts it.
    shown.encode()


@pytest.mark.parametrize("text", ["", "orders", "Grüße", "😀", "\uf8ff\ue000", "a\x00b"])
def test_unicode_is_shown_unchanged(text: str) -> None:
    assert column_text(text.encode()) == text
    assert message_text(text) == text


def test_other_bytes_are_private_characters() -> None:
    assert column_text(b"Gr\xfc\xdfe") == "Gr\ueffc\uefdfe"
    assert column_text("\uefff".encode()) == "\uefee\uefbf\uefbf"
