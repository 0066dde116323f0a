"""Fixtures of the client's tests."""

from __future__ import annotations

import pytest

from lmqcluster.client.transport.calls import Push
from lmqcluster.client.transport.shared_requests import SHARED


@pytest.fixture
def single_pushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send each push in a separate request, so that a script decides about each."""
    monkeypatch.delitem(SHARED, Push)
