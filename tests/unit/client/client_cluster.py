"""A small MessagePack-RPC server that the client's tests can make misbehave.

`ModelCluster` is the state that all nodes share: queues, leases and the highest sequence of each producer,
deduplicating as the real state machine does. `ScriptedNode` is one listening node on a real socket. The test's script
chooses a `Fate` for every request.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Self, cast

import msgpack


class Fate(Enum):
    """The fate of a request."""

    ANSWER = auto()
    DROP_BEFORE = auto()  # the connection is closed, nothing happened
    DROP_AFTER = auto()  # it is applied, the connection is closed without an answer
    APPLY_LATE = (
        auto()
    )  # the connection is closed; it and later requests are applied when `ModelCluster.apply_late` is called
    HOLD = auto()  # it is applied, and answered only when `ScriptedNode.answer_held` is called
    STALL = auto()  # nothing happens, nor to later pushes, and a moment later the connection is closed
    REFUSE = auto()  # "no_leader", nothing happened
    DOUBT = auto()  # "unknown_outcome", but it is applied


@dataclass
class Request:
    """One request as the script sees it."""

    msgid: int
    method: str
    arguments: list[Any]
    first_sequence: int = 0
    """Number of the first content of a push without a key."""


Script = Callable[[Request], "Fate | str"]
"""Chooses a fate; a string is answered as the error."""


class ModelCluster:
    """The state of the cluster."""

    def __init__(self) -> None:
        self.queues: dict[bytes, deque[Any]] = {}
        self.stored: list[Any] = []
        self.leases: dict[bytes, tuple[bytes, Any]] = {}
        self.settled: list[tuple[str, bytes]] = []
        self.forgotten: set[bytes] = set()  # nothing is known of these any more
        self.last: dict[bytes, int] = {}
        self.keys: set[bytes] = set()
        self.late: list[Callable[[], Any]] = []
        self.arrival = asyncio.Event()  # set, and replaced, by every push

    def push(self, queue: bytes, contents: list[Any], producer: bytes | None, first: int) -> list[bytes]:
        """Store the new contents of a numbered batch."""
        for sequence, content in enumerate(contents, first):
            if producer is not None:
                if sequence <= self.last.get(producer, 0):
                    continue
                self.last[producer] = sequence
            self.stored.append(content)
            self.queues.setdefault(queue, deque()).append(content)
        self.arrival.set()
        self.arrival = asyncio.Event()
        return [b"ok"] * len(contents)

    def push_keyed(self, queue: bytes, contents: list[Any], keys: list[bytes]) -> list[bytes]:
        """Store contents with new keys."""
        fresh = [content for content, key in zip(contents, keys, strict=True) if key not in self.keys]
        self.keys.update(keys)
        self.push(queue, fresh, None, 0)
        return [b"ok"] * len(contents)

    def pull(self, queue: bytes, count: int) -> list[dict[bytes, Any]]:
        """Deliver messages under new ids."""
        ready = self.queues.setdefault(queue, deque())
        pulled = []
        while ready and len(pulled) < count:
            message_id = b"%036d" % (len(self.leases) + len(self.settled) + 1)
            content = ready.popleft()
            self.leases[message_id] = (queue, content)
            pulled.append(
                {b"queue": queue, b"id": message_id, b"type": b"normal", b"retry": 2, b"content": content}
                | {b"content_type": b"application/x-msgpack"}
            )
        return pulled

    def settle(self, verb: str, message_id: bytes, *, again: bool = False) -> bool | None:
        """End (or extend) a lease."""
        if again and message_id in self.forgotten:
            return None
        if message_id not in self.leases:
            return again and (verb, message_id) in self.settled
        self.settled.append((verb, message_id))
        if verb != "retain":
            queue, content = self.leases.pop(message_id)
            if verb == "release":
                self.queues[queue].append(content)
            elif verb == "put_back":
                self.queues[queue].appendleft(content)
        return True

    def transaction(self, operations: list[list[Any]], *, again: bool) -> tuple[bytes | None, Any]:
        """Apply acks and keyed pushes, all or none."""
        acks = [operation[2] for operation in operations if operation[0] == b"done"]
        if not all(message_id in self.leases for message_id in acks):
            was_done = again and all(("done", message_id) in self.settled for message_id in acks)
            return (None, [b"ok"] * len(operations)) if was_done else (b"lease_lost: too late", None)
        for verb, queue, subject, options in operations:
            if verb == b"done":
                self.settle("done", subject)
            else:
                self.push_keyed(queue, [subject], [options.get(b"key", object())])
        return None, [b"ok"] * len(operations)

    def apply_late(self) -> None:
        """Append the pending requests of lost connections to the log now."""
        late, self.late = self.late, []
        for apply in late:
            apply()


class ScriptedNode:
    """One node, listening on 127.0.0.1."""

    def __init__(self, cluster: ModelCluster, script: Script = lambda _request: Fate.ANSWER) -> None:
        self.cluster = cluster
        self.script = script
        self.requests: list[Request] = []
        self.notifications: list[tuple[str, list[Any]]] = []
        self.connections = 0
        # The addresses that it reports as those of its cluster; by default, its own.
        self.named: list[str] | None = None
        self.reply_piece = 0  # above 0: size of the pieces in which replies are written
        self.port = 0
        self.seen = asyncio.Event()
        self._held: list[Callable[[], None]] = []
        self._open: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if it was started before."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()
            self._server = None

    def cut(self) -> None:
        """Cut every connection."""
        for connection in list(self._open):
            connection.cut()

    def answer_held(self) -> None:
        """Answer every held request."""
        held, self._held = self._held, []
        for answer in held:
            answer()

    def answer(self, request: Request, result: Any) -> None:
        """Answer a held request with `result`."""
        for connection in self._open:
            connection._reply(request.msgid, None, result)

    @property
    def address(self) -> str:
        """Return its address."""
        return f"127.0.0.1:{self.port}"

    def methods(self) -> list[str]:
        """Return the names of the methods called so far, without the connection's own."""
        return [request.method for request in self.requests if request.method not in ("producer", "ping", "cluster")]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true; it is checked after every request and lost connection."""
        while not condition():
            self.seen.clear()
            await self.seen.wait()


class _Connection(asyncio.Protocol):
    def __init__(self, node: ScriptedNode) -> None:
        self._node = node
        self._cluster = node.cluster
        self._unpacker = msgpack.Unpacker(raw=True, max_buffer_size=1 << 30)
        self._producer: bytes | None = None
        self._sequence = 1
        self._refusing: str | None = None  # until the next `producer`, as the real node does
        self._late = False
        self._stalled = False
        self._waiting: dict[int, asyncio.Task[None]] = {}
        self._pieces = bytearray()
        self._dribbler: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._node.connections += 1
        self._node._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._node._open.discard(self)
        for task in self._waiting.values():
            task.cancel()
        self._node.seen.set()

    def cut(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._unpacker.feed(data)
        for message in self._unpacker:
            if message[0] == 2:
                self._notified(message[1].decode(), message[2])
            else:
                _, msgid, method, arguments = message
                self._requested(Request(msgid, method.decode(), arguments))
            self._node.seen.set()

    def _notified(self, method: str, arguments: list[Any]) -> None:
        self._node.notifications.append((method, arguments))
        if method == "cancel" and (task := self._waiting.pop(arguments[0], None)) is not None:
            task.cancel()
            is_many = any(one.msgid == arguments[0] and one.method == "pull_many" for one in self._node.requests)
            self._reply(arguments[0], None, [] if is_many else b"empty")

    def _requested(self, request: Request) -> None:
        if self._transport.is_closing() and not self._late:
            return
        self._node.requests.append(request)
        numbered = request.method in ("push", "push_many", "push_each") and not _has_keys(request.arguments[2:])
        if numbered:
            request.first_sequence = self._sequence
            self._sequence += 1 if request.method == "push" else len(request.arguments[1])
        if self._late and request.method != "producer":
            self._cluster.late.append(lambda: self._apply(request))
            return
        fate = self._node.script(request)
        if fate is Fate.REFUSE:
            fate = "no_leader: there is no leader"
        if numbered and self._refusing is not None:
            fate = self._refusing
        elif numbered and self._stalled and not isinstance(fate, str):
            fate = Fate.STALL
        if isinstance(fate, str):
            if numbered and fate.startswith(("no_leader", "overloaded", "shutting_down")):
                self._refusing = fate
            # A request with an unknown outcome blocks all later ones.
            self._stalled = self._stalled or fate.startswith("unknown_outcome")
            self._reply(request.msgid, fate.encode(), None)
        elif fate is Fate.DROP_BEFORE:
            self.cut()
        elif fate is Fate.STALL:
            self._stalled = True
            asyncio.get_running_loop().call_later(0.005, self.cut)
        elif fate is Fate.APPLY_LATE:
            self._late = True
            self._cluster.late.append(lambda: self._apply(request))
            self.cut()
        else:
            self._carry_out(request, fate)

    def _carry_out(self, request: Request, fate: Fate) -> None:
        if request.method in ("pull", "pull_many", "pull_any") and fate is Fate.ANSWER:
            task = asyncio.get_running_loop().create_task(self._pull(request))
            self._waiting[request.msgid] = task
            return
        error, result = self._apply(request)
        if fate is Fate.DROP_AFTER:
            self.cut()
        elif fate is Fate.DOUBT:
            self._reply(request.msgid, b"unknown_outcome: who knows", None)
        elif fate is Fate.HOLD:
            self._node._held.append(lambda: self._reply(request.msgid, error, result))
        else:
            self._reply(request.msgid, error, result)

    def _apply(self, request: Request) -> tuple[bytes | None, Any]:
        cluster, arguments = self._cluster, request.arguments
        match request.method:
            case "producer":
                self._producer, self._sequence = arguments
                self._refusing = None
                return None, b"ok"
            case "ping":
                return None, b"pong"
            case "push_each":
                return None, cluster.push(arguments[0], arguments[1], self._producer, request.first_sequence)
            case "push" if _has_keys(arguments[2:]):
                return None, cluster.push_keyed(arguments[0], [arguments[1]], [arguments[2][b"key"]])[0]
            case "push":
                return None, cluster.push(arguments[0], [arguments[1]], self._producer, request.first_sequence)[0]
            case "push_many" if _has_keys(arguments[2:]):
                return None, cluster.push_keyed(arguments[0], arguments[1], arguments[2][b"keys"])
            case "push_many":
                return None, cluster.push(arguments[0], arguments[1], self._producer, request.first_sequence)
            case "pull" | "pull_any":
                pulled = cluster.pull(arguments[0], 1)
                return None, pulled[0] if pulled else b"empty"
            case "pull_many":
                return None, cluster.pull(arguments[0], arguments[1])
            case "done" | "release" | "retain":
                found = cluster.settle(request.method, arguments[1])
                return (None, b"ok") if found else (b"throw:not_found", None)
            case "done_many" | "release_many" | "retain_many" | "put_back_many":
                verb = request.method.removesuffix("_many")
                again = len(arguments) == 3 and arguments[2].get(b"again", False)
                return None, [cluster.settle(verb, message_id, again=again) for message_id in arguments[1]]
            case "transaction":
                return cluster.transaction(arguments[0], again=len(arguments) == 2 and arguments[1][b"again"])
            case "push_all":
                for queue in cluster.queues:
                    cluster.push(queue, [arguments[1]], None, 0)
                return None, b"ok"
            case "purge":
                return None, len(cluster.pull(arguments[0], 1 << 30))
            case "move":
                most = arguments[2] if len(arguments) == 3 else 1 << 30
                moved = [message[b"content"] for message in cluster.pull(arguments[0], most)]
                cluster.push(arguments[1], moved, None, 0)
                return None, len(moved)
            case "delete" | "update_props" | "set_default_props":
                return None, b"ok"
            case "get_default_props":
                return None, [[b"^a", {b"pack": 1.5}]]
            case "cluster":
                named = [self._node.address] if self._node.named is None else self._node.named
                return None, {b"self": b"n1", b"leader": b"n1", b"rpc": [text.encode() for text in named]}
        return b"undef", None

    async def _pull(self, request: Request) -> None:
        wait_s = request.arguments[2 if request.method == "pull_many" else 1]
        try:
            async with asyncio.timeout(wait_s if wait_s > 0 else None):
                while True:
                    error, result = self._apply(request)
                    if result not in (b"empty", []) or wait_s <= 0:
                        break
                    await self._cluster.arrival.wait()
        except TimeoutError:
            error, result = None, [] if request.method == "pull_many" else b"empty"
        self._waiting.pop(request.msgid, None)
        self._reply(request.msgid, error, result)

    def _reply(self, msgid: int, error: bytes | None, result: Any) -> None:
        data = msgpack.packb([1, msgid, error, result], use_bin_type=False)
        if not self._node.reply_piece:
            self._transport.write(data)
            return
        self._pieces += data
        if self._dribbler is None:
            self._dribbler = asyncio.get_running_loop().create_task(self._dribble())

    async def _dribble(self) -> None:
        size = self._node.reply_piece
        while self._pieces:
            self._transport.write(bytes(self._pieces[:size]))
            del self._pieces[:size]
            await asyncio.sleep(0)
        self._dribbler = None


def async_test(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test to its end on a new loop; a hanging test fails."""

    @functools.wraps(function)
    def test(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(300):
                await function(*args, **kwargs)
            # A task of asyncio that accepts a connection may be left.
            left = [task for task in asyncio.all_tasks() if "_accept" not in repr(task.get_coro())]
            left.remove(cast("asyncio.Task[Any]", asyncio.current_task()))
            assert not left, f"tasks left over: {left}"

        asyncio.run(limited())

    return test


def _has_keys(options: list[Any]) -> bool:
    """Return whether the options of a push, if there are any, name keys."""
    return any(one.get(b"key") is not None or one.get(b"keys") is not None for one in options)
