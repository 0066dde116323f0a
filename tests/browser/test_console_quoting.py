"""Command lines that the console offers to copy, executed by a shell: any name stays one word."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser

NASTY = [
    b"billing.\xff\\'; touch x #",
    b"\xff'; touch x; echo '",
    b"$(touch x)",
    b"`touch x`",
    b"a'b\"c\\d",
    b"\\x41\xff",
    b"trailing\\",
    b"new\nline; touch x",
    b"\x15touch x\r",
    b"\x1b[201~touch x\n",
    b"bell\x07\x9b\xc2\x9b",
    "\u202eesrever \u2028 \ufeffbom".encode(),
    b"!! !$ ^a^b",
    b"~root",
    b"*?[a]{b,c}",
    b"=ls",
    b"a b\tc",
    b"#comment",
    b"-rf",
    b"--yes",
    b"--\xff",
    "h\u00e9llo \U0001f600".encode(),
    b"%41%zz",
    b"",
]

Module = Callable[[str, Any], Any]


@pytest.fixture(scope="module")
def names(browser: Browser) -> Iterator[Module]:
    """Calls a function of the console's module for names."""
    source = files("lmqcluster.console").joinpath("static", "names.js").read_bytes()
    url = "data:text/javascript;base64," + base64.b64encode(source).decode()
    page = browser.new_page()
    code = "([url, name, values]) => import(url).then((module) => module[name](...values))"
    yield lambda name, values: page.evaluate(code, [url, name, values])
    page.close()


def words_of(line: str) -> list[bytes]:
    """Return the arguments that bash passes to a program. Nothing else is executed: the folder must stay empty."""
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, timeout=60, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stderr == b""
    return done.stdout.split(b"\0")[:-1]


def test_names_are_one_word_each(names: Module, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NASTY:
        word = names("queueWord", [quote(name, safe="")])
        assert word.isprintable(), name
        assert words_of(word) == [name]
        line = names("joined", [["lmq-admin", "queue", "rm"], [word], ["--yes"]])
        options = [b"--yes", b"--", name] if name.startswith(b"-") else [name, b"--yes"]
        assert words_of(line) == [b"lmq-admin", b"queue", b"rm", *options]
    assert list(tmp_path.iterdir()) == []


def test_texts_are_one_word_each(names: Module, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for data in NASTY:
        text = data.decode("utf-8", "replace")
        word = names("quoted", [text])
        assert word.isprintable(), text
        assert words_of(word) == [text.encode()]
    assert list(tmp_path.iterdir()) == []


def test_any_bytes_are_one_word(names: Module, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @settings(max_examples=30)
    @given(
        st.lists(
            st.binary(min_size=1, max_size=20).map(lambda data: data.replace(b"\0", b"'")), min_size=1, max_size=20
        )
    )
    def check(given_names: list[bytes]) -> None:
        words = [names("queueWord", [quote(name, safe="")]) for name in given_names]
        assert words_of(" ".join(words)) == given_names

    check()
    assert list(tmp_path.iterdir()) == []
