"""A node with tokens, and a query called as Spark calls it that is restarted with another token."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.error import HTTPError

from pyspark.sql.streaming.datasource import ReadMaxRows

from lmqcluster.spark.base.options import StreamRead
from lmqcluster.spark.base.schema import Extras, read_schema
from lmqcluster.spark.reading.stream_reader import StreamReader
from tests.integration.cluster import NodeProcess

__all__ = ["Query", "Tokens"]

MICRO_BATCH: Final = 100


class Tokens:
    """The tokens of a node, managed by its administrator.

    Attributes:
        root: the administrator's secret.
    """

    def __init__(self, node: NodeProcess) -> None:
        """Create the administrator's token, the first one."""
        self._node = node
        self.root = ""
        self.root = self.create("root", role="admin")

    def create(
        self, name: str, principal: str | None = None, *, role: str = "write", lifetime_s: float | None = None
    ) -> str:
        """Create a token; return its secret."""
        body = {"name": name, "role": role, "lifetime": lifetime_s}
        if principal is not None:
            body["principal"] = principal
        return str(self._ask("POST", "/v1/tokens", body)["token"])

    def delete(self, name: str) -> None:
        """Delete a token."""
        self._ask("DELETE", f"/v1/tokens/{name}")

    def delete_if_known(self, name: str) -> None:
        """Delete a token, unless it does not exist."""
        try:
            self.delete(name)
        except HTTPError as exc:
            if exc.code != 404:
                raise

    def has_ended(self, secret: str) -> bool:
        """Return whether the node refuses a secret."""
        try:
            self._ask("GET", "/v1/access", secret=secret)
        except HTTPError as exc:
            if exc.code != 401:
                raise
            return True
        return False

    def _ask(self, method: str, path: str, body: object = None, secret: str | None = None) -> Any:
        headers = {"content-type": "application/json", "authorization": f"Bearer {secret or self.root}"}
        if not (secret or self.root):
            del headers["authorization"]
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self._node.http}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
        return json.loads(text) if text else None


class Query:
    """A query whose checkpoint and sink outlive its readers.

    Attributes:
        rows: the rows of the sink.
    """

    def __init__(self, servers: str, queue: str, **options: str) -> None:
        self._options = {
            "lmq.servers": servers, "subscribe": queue, "lmq.subscription": f"{queue}-query", "lmq.timeout": "60", **options,
        }  # fmt: skip
        self._committed: dict[str, Any] | None = None
        self._planned: dict[str, Any] | None = None
        self.rows: list[bytes] = []

    @contextmanager
    def started(self, secret: str, **options: str) -> Iterator[StreamReader]:
        """Start the query with a token; it is stopped at the end of the block."""
        given = {**self._options, "lmq.token": secret, **options}
        reader = StreamReader(StreamRead.parse(given), read_schema(Extras()))
        try:
            if self._committed is None:
                self._committed = self._planned = reader.initialOffset()
            yield reader
        finally:
            reader.stop()

    def plan(self, reader: StreamReader) -> bool:
        """Plan the next micro-batch, unless one is planned already; return False if there is nothing to read."""
        assert self._committed is not None
        if self._planned == self._committed:
            self._planned = reader.latestOffset(self._committed, ReadMaxRows(MICRO_BATCH))
        return self._planned != self._committed

    def run(self, reader: StreamReader) -> None:
        """Execute the planned micro-batch."""
        assert self._committed is not None
        assert self._planned is not None
        parts = reader.partitions(self._committed, self._planned)
        rows = [value for part in parts for batch in reader.read(part) for value in batch.column("value").to_pylist()]
        self.rows += rows
        self._committed = self._planned

    def advance(self, reader: StreamReader, micro_batches: int = 1 << 30) -> None:
        """Execute up to `micro_batches` micro-batches, until there is nothing to read."""
        for _ in range(micro_batches):
            if not self.plan(reader):
                break
            self.run(reader)
