"""The calls of the blocking client are what `python -m deploy.blocking_client` writes."""

from __future__ import annotations

import inspect

import pytest

from deploy.blocking_client import BY_HAND, CLIENT, generated, written
from lmqcluster import AsyncClient, Client

PUBLIC = sorted(name for name in dir(AsyncClient) if not name.startswith("_"))


def test_the_calls_are_up_to_date() -> None:
    text = CLIENT.read_text("utf-8")
    assert written(text) == text, "run python -m deploy.blocking_client"


def test_a_changed_signature_changes_the_calls() -> None:
    text = CLIENT.read_text("utf-8")
    stale = text.replace("def purge(self, queue: Name) -> int:", "def purge(self, queue: Name, count: int) -> int:")
    assert stale != text == written(stale)
    assert "def purge(self, queue: Name) -> int:" in generated()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_call_of_the_asyncio_client_is_there_with_the_same_arguments(name: str) -> None:
    blocking, asynchronous = getattr(Client, name), getattr(AsyncClient, name)
    if not inspect.isfunction(asynchronous):
        assert name in BY_HAND
        return
    expected, found = inspect.signature(asynchronous), inspect.signature(blocking)
    assert list(found.parameters.values()) == list(expected.parameters.values()), name
