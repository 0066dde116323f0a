"""Connections to the cluster that wait out failures, with errors that name the responsible option."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import TracebackType
from typing import Final, Self, TypeVar

from lmqcluster import Client, LmqError
from lmqcluster.client.transport.addresses import NodeAddress
from lmqcluster.client.transport.credentials import read_token
from lmqcluster.client.transport.known_nodes import KnownNodes

from .errors import OptionError
from .options import Connection, Selection

__all__ = ["Cluster", "Contact", "selection_errors"]

T = TypeVar("T")

logger = logging.getLogger("lmqcluster.spark")

_ATTEMPT_S_MAX: Final = 60.0
_FIRST_S_MAX: Final = 15.0
"""For the first contact: the addresses may be wrong."""
_PROBE_S: Final = 5.0
_PAUSE_S: Final = 1.0
_PASSING: Final = frozenset({"no_leader", "unreachable", "unknown_outcome", "overloaded", "shutting_down", "throttled"})
"""Temporary errors. Every call made here may be retried, whatever the outcome of the first attempt."""


@dataclass(frozen=True)
class Contact:
    """The knowledge that the driver passes to its tasks, which may run on other machines.

    Attributes:
        token: the token to try first.
        nodes: addresses reported by the cluster.
    """

    token: str | None = field(repr=False)
    nodes: tuple[NodeAddress, ...]


class Cluster:
    """A connection to a node that has answered, for calls that wait out the loss of nodes or quorum. A context manager."""

    def __init__(self, connection: Connection, contact: Contact | None = None) -> None:
        """Connect.

        Args:
            connection: from the options.
            contact: the driver's knowledge when it planned this task.

        Raises:
            LmqError: ``unreachable`` if no node answers in time; ``unauthorized`` if they refuse the token.
            OptionError: a TLS file cannot be used.
        """
        self._nodes = _nodes(connection.servers, discovers=connection.discovers)
        if contact is not None:
            connection = replace(connection, token=contact.token)
            if contact.nodes:
                self._nodes.take(contact.nodes)
        self._connection = connection
        attempt_s = min(connection.timeout_s, _ATTEMPT_S_MAX)
        first_s = attempt_s if contact is not None else min(attempt_s, _FIRST_S_MAX)
        self.client = self._client(first_s)
        try:
            self.client.ping()
        except LmqError as exc:
            self.client.close(0)
            if exc.code == "unauthorized":
                raise self._unauthorized(exc) from exc
            text = f"no node of option 'lmq.servers' = {connection.servers!r} answered within {first_s:g} s"
            raise _with_text(exc, f"lmq: {text}: {exc.message}") from exc
        if first_s < attempt_s:
            self.client.close(0)
            self.client = self._client(attempt_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; calls in progress fail."""
        self.client.close(0)

    def contact(self) -> Contact:
        """Return what tasks need to reach the cluster from now on: the current token of the file, and the nodes."""
        file = self._connection.token_file
        if file is not None:
            try:
                self._connection = replace(self._connection, token=read_token(file))
            except (OSError, ValueError) as exc:
                logger.warning("token file unreadable, tasks use the old token: %s", exc)
        return Contact(self._connection.token, self._nodes.named)

    def call(self, function: Callable[[Client], T], *, within_s: float = math.inf) -> T:
        """Return the result of `function`; retry it while the cluster cannot answer, until ``lmq.timeout`` expires.

        Args:
            function: may be called any number of times.
            within_s: maximum time; ``lmq.timeout`` if that is shorter.

        Raises:
            LmqError: the cluster refused the call, or did not answer in time.
        """
        patience_s = min(self._connection.timeout_s, within_s)
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                return function(self.client)
            except LmqError as exc:
                if exc.code == "unauthorized":
                    raise self._unauthorized(exc) from exc
                if exc.code not in _PASSING or not (exc.retryable or exc.code == "unknown_outcome"):
                    raise _with_text(exc, exc.message) from exc
                if time.monotonic() + _PAUSE_S >= deadline_s:
                    raise self._given_up(exc, patience_s) from exc
                logger.warning("cluster not answering, retrying: %s", exc)
            time.sleep(_PAUSE_S)

    def _client(self, timeout_s: float) -> Client:
        given = self._connection
        try:
            return Client(
                self._nodes,
                timeout_s=timeout_s,
                connect_timeout_s=given.connect_timeout_s,
                token=given.token,
                token_file=given.token_file,
                tls_ca=given.tls_ca,
                tls_cert=given.tls_cert,
            )
        except OSError as exc:
            option = "lmq.tls.ca" if given.tls_cert is None else "lmq.tls.cert"
            files = " or ".join(repr(file) for file in (given.tls_ca, given.tls_cert) if file is not None)
            raise OptionError(option, f": {files} cannot be used: {exc}") from exc

    def _unauthorized(self, error: LmqError) -> LmqError:
        """Return the error for a refused token."""
        given = self._connection
        if given.token is None:
            cause = "no token is set: set option 'lmq.token.file'"
        elif given.token_file is None:
            cause = "the token of option 'lmq.token' was deleted, has expired or is wrong: restart the query with another one"
        else:
            cause = (
                f"the file {given.token_file!r} (option 'lmq.token.file') has no other token here: write a new token into it, "
                "and restart the query if Spark has ended it"
            )
        return _with_text(error, f"lmq: the nodes refuse the token; nothing was changed; {cause}; {error.message}")

    def _given_up(self, error: LmqError, patience_s: float) -> LmqError:
        """Return the error after the last attempt: no node answers, or no majority."""
        try:
            with self._client(_PROBE_S) as probe:
                address = probe.address
        except LmqError:
            what = f"no node of option 'lmq.servers' = {self._connection.servers!r} answers"
        else:
            what = f"node {address} answers, but there is no leader: a majority of the nodes is missing"
        return _with_text(error, f"lmq: gave up after {patience_s:g} s (option 'lmq.timeout'): {what}; {error.message}")


def _with_text(error: LmqError, text: str) -> LmqError:
    """Return the error with another text that names its code: Spark passes on only the text of an error."""
    named = text if f"[{error.code}]" in text else f"{text} [{error.code}]"
    return LmqError(error.code, named, retryable=error.retryable, outcome=error.outcome)


@lru_cache(maxsize=64)
def _nodes(servers: str, *, discovers: bool) -> KnownNodes:
    """Return the known nodes of a cluster, shared by all connections of this process."""
    return KnownNodes(servers, discovers=discovers)


@contextmanager
def selection_errors(selection: Selection) -> Iterator[None]:
    """Raise `OptionError` if a call in the block fails because of the queue's name or the pattern."""
    try:
        yield
    except LmqError as exc:
        if exc.code == "bad_pattern":
            raise OptionError("subscribePattern", f"= {selection.pattern!r} is refused: {exc.message}") from exc
        if exc.code == "bad_name":
            raise OptionError("subscribe", f"= {', '.join(selection.queues)!r} is refused: {exc.message}") from exc
        raise
