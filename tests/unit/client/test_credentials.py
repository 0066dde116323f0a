"""Tokens and certificates from files: when they are read, and the effect of an unusable file."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from lmqcluster import AsyncClient
from lmqcluster.client import ClientOptions
from lmqcluster.client.transport.credentials import TOKEN_BYTES_MAX, Credentials, read_token


def test_a_refused_token_is_replaced_by_the_one_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" one\n")
    shown = Credentials(token_file=file)
    assert shown.token == b"one"
    assert not shown.renew(b"one"), "there is no other one yet"
    file.write_text("two\n")
    assert shown.token == b"one", "a valid token is sent"
    assert shown.renew(b"one")
    assert shown.token == b"two"
    file.write_text("three")
    assert shown.renew(b"one"), "another connection was refused the same token, and has not tried the new one yet"
    assert shown.token == b"two"
    assert shown.renew(b"two")
    assert shown.token == b"three"


def test_a_given_token_takes_precedence_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    shown = Credentials(token="given", token_file=file)
    assert shown.token == b"given"
    assert not shown.renew(b"given"), "there is no file"
    file.write_text("from the file")
    assert shown.renew(b"given")
    assert shown.token == b"from the file"


@pytest.mark.parametrize(
    "content", ["", " \n", "two words\nand lines", "\x00", "ünlesbar", "x" * (TOKEN_BYTES_MAX + 1)]
)
def test_a_file_without_a_token_changes_nothing(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    shown = Credentials(token_file=file)
    file.write_text(content)
    assert not shown.renew(b"one")
    assert shown.token == b"one"
    with pytest.raises((ValueError, OSError)):
        read_token(file)


def test_an_unusable_file_at_the_start_is_refused(tmp_path: Path) -> None:
    absent, text = tmp_path / "absent", tmp_path / "text"
    text.write_text("no certificate")
    missing: list[ClientOptions] = [{"token_file": absent}, {"tls_ca": absent}, {"tls_cert": absent}]
    for options in missing:
        with pytest.raises(FileNotFoundError):
            AsyncClient("h", **options)
    unusable: list[ClientOptions] = [{"tls_ca": text}, {"tls_cert": text}]
    for options in unusable:
        with pytest.raises(ssl.SSLError):
            AsyncClient("h", **options)
        both: ClientOptions = {**options, "tls": ssl.create_default_context()}
        with pytest.raises(ValueError, match="one or the other"):
            AsyncClient("h", **both)


def test_without_files_nothing_is_read() -> None:
    context = ssl.create_default_context()
    assert Credentials(tls=context).tls() is context
    plain = Credentials(token="t")
    assert (plain.tls(), plain.has_tls, plain.renew(b"t")) == (None, False, False)
