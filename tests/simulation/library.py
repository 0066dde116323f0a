"""Replacements in PySyncObj that make a run a function of its seed."""

from __future__ import annotations

import contextlib
import functools
import logging
import zlib
from typing import TYPE_CHECKING, Any
from unittest import mock

import pysyncobj.node
import pysyncobj.syncobj

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.simulation.clock import Clock

__all__ = ["deterministic_library"]


class _NoPoller:
    """Polls nothing: the simulated network calls the library."""

    def poll(self, timeout: float) -> None:
        pass


@functools.cache
def _hash_of(node_id: str) -> int:
    return zlib.crc32(node_id.encode())


def _stable_hash(node: pysyncobj.node.Node) -> int:
    return _hash_of(node._id)


def _no_poller(_kind: str) -> Any:
    return _NoPoller()


@contextlib.contextmanager
def deterministic_library(clock: Clock, rng: random.Random) -> Iterator[None]:
    """Install a virtual clock, seeded random numbers, no sockets, and an iteration order of node sets that is the same
    in every process (the library keeps peers in sets, and strings hash differently in each interpreter).
    """
    library = pysyncobj.syncobj
    log_level = library.logger.level
    library.logger.setLevel(logging.CRITICAL + 1)
    try:
        with (
            mock.patch.object(library, "monotonicTime", clock.time),
            mock.patch.object(library, "random", rng),
            mock.patch.object(library, "createPoller", _no_poller),
            mock.patch.object(pysyncobj.node.Node, "__hash__", _stable_hash),
        ):
            yield
    finally:
        library.logger.setLevel(log_level)
