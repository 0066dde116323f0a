"""Installing what tests need beyond Python: one test process at a time, because package managers do not wait for one another."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["one_at_a_time"]


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """While one test process installs something the others wait; they then find it."""
    with (Path(tempfile.gettempdir()) / "lmqcluster-test-tools.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
