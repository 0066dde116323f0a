"""NATS JetStream: three servers, and a stream with three replicas in files for each queue."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tests.benchmarks.native.rows import Operation, Protocol, Row
from tests.benchmarks.native.servers import NODES, Servers, Settings
from tests.benchmarks.processes import ServerProcess
from tests.integration.cluster import ports, wait_for

ANSWER_S = 30.0


class JetStreamServers(Servers):
    """Three servers that sync their files every two minutes, as they do by default."""

    name = "JetStream"
    protocols: ClassVar[Mapping[Protocol, str]] = {Protocol.OWN: "jetstream", Protocol.LIBRARY: "nats.go"}
    sync_interval: ClassVar[str | None] = None
    """The configured value, None for the default."""
    servers: dict[str, ServerProcess]
    """The started processes by name."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._directory: Path | None = None
        self.servers = {}
        self._clients = {f"n{i + 1}": ports.take() for i in range(NODES)}
        self._routes = {name: ports.take() for name in self._clients}
        self._monitors = {name: ports.take() for name in self._clients}

    def start(self) -> None:
        """Start three servers."""
        self._directory = Path(tempfile.mkdtemp(prefix="lmqcluster-bench-nats-"))
        for name in self._clients:
            config = self._directory / f"{name}.conf"
            config.write_text(self._config(name, self._directory / name))
            command = [self.settings.nats_server, "-c", str(config)]
            self.servers[name] = ServerProcess(name, command, self._directory).start()
        for name in self._clients:
            wait_for(partial(self._healthy, name), f"nats-server {name} ready")

    def _config(self, name: str, store: Path) -> str:
        """Return the configuration of a server."""
        others = ", ".join(f"nats-route://127.0.0.1:{port}" for other, port in self._routes.items() if other != name)
        sync = "" if self.sync_interval is None else f", sync_interval: {self.sync_interval}"
        return f"""
            server_name: {name}
            listen: 127.0.0.1:{self._clients[name]}
            http: 127.0.0.1:{self._monitors[name]}
            jetstream {{ store_dir: "{store}", max_mem: 1G, max_file: 20G{sync} }}
            cluster {{ name: bench, listen: 127.0.0.1:{self._routes[name]}, routes: [{others}] }}
        """

    def _healthy(self, name: str) -> bool:
        """Return whether a server serves JetStream and knows the leader and all members of the cluster."""
        self.servers[name].check_running()
        found = self._get(name, "/jsz").get("meta_cluster", {})
        healthy = self._get(name, "/healthz").get("status") == "ok"
        return healthy and bool(found.get("leader")) and found.get("cluster_size") == NODES

    def _get(self, name: str, path: str) -> dict[str, Any]:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"http://127.0.0.1:{self._monitors[name]}{path}", timeout=5) as answer:
                return json.loads(answer.read())
        except (OSError, urllib.error.URLError):
            return {}

    def stop(self) -> None:
        """Kill the servers."""
        for server in self.servers.values():
            server.stop()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def description(self) -> str:
        """Return what a PubAck means."""
        synced = "every two minutes (the default)" if self.sync_interval is None else self.sync_interval
        return f"R3, files, sync_interval {synced}"

    def processes(self) -> Mapping[str, int]:
        """Return the process id of each server."""
        return {name: server.pid for name, server in self.servers.items()}

    def leader(self, queue: str) -> str:
        """Return the leader of the stream."""
        return wait_for(lambda: self._stream(queue).get("cluster", {}).get("leader"), f"a leader of {queue}")

    def address(self, server: str, protocol: Protocol) -> str:
        """Return the address for clients."""
        return f"127.0.0.1:{self._clients[server]}"

    def create(self, queue: str, row: Row) -> None:
        """Create a stream, for consumption with a durable consumer that the same server leads."""
        stream = {"name": queue, "subjects": [queue], "retention": "workqueue", "storage": "file"}
        self._call(f"STREAM.CREATE.{queue}", {**stream, "num_replicas": NODES})
        wait_for(lambda: self._complete(self._stream(queue)), f"all replicas of {queue}")
        if row.operation is Operation.CONSUME:
            limits = {"ack_wait": 300 * 10**9, "max_ack_pending": 1_000_000, "max_waiting": 10_000}
            consumer = {"durable_name": queue, "ack_policy": "explicit", **limits}
            self._call(f"CONSUMER.DURABLE.CREATE.{queue}.{queue}", {"stream_name": queue, "config": consumer})
            wait_for(lambda: self._led_together(queue), f"one leader of stream and consumer {queue}")

    @staticmethod
    def _complete(info: Mapping[str, Any]) -> bool:
        cluster = info.get("cluster", {})
        replicas = cluster.get("replicas") or []
        return bool(cluster.get("leader")) and len(replicas) == NODES - 1 and all(one["current"] for one in replicas)

    def _led_together(self, queue: str) -> bool:
        """Return whether the consumer is led by the leader of the stream; ask for that."""
        leader = self.leader(queue)
        info = self._request(f"CONSUMER.INFO.{queue}.{queue}", {})
        if info.get("cluster", {}).get("leader") == leader:
            return self._complete(info)
        self._request(f"CONSUMER.LEADER.STEPDOWN.{queue}.{queue}", {"placement": {"preferred": leader}})
        return False

    def stored(self, queue: str) -> int:
        """Return the number of messages in the stream."""
        return int(wait_for(lambda: self._stream(queue).get("state"), f"the state of {queue}")["messages"])

    def _stream(self, queue: str) -> dict[str, Any]:
        return self._request(f"STREAM.INFO.{queue}", {})

    def _call(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request of the JetStream API.

        Raises:
            RuntimeError: it fails.
        """
        answer = self._request(subject, body)
        if not answer or "error" in answer:
            raise RuntimeError(f"{subject}: {answer}")
        return answer

    def _request(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request of the JetStream API; the answer is empty if none comes, as without a leader."""
        return asyncio.run(self._answer(subject, json.dumps(body).encode()))

    async def _answer(self, subject: str, body: bytes) -> dict[str, Any]:
        import nats
        import nats.errors

        client = await nats.connect(f"nats://127.0.0.1:{next(iter(self._clients.values()))}")
        try:
            return json.loads((await client.request(f"$JS.API.{subject}", body, timeout=ANSWER_S)).data)
        except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
            return {}
        finally:
            await client.close()


class SyncedJetStreamServers(JetStreamServers):
    """Three servers that sync every write."""

    name = "JetStream, synced"
    sync_interval = "always"
