"""`Client`, the blocking twin, against a node on an event loop in another thread."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmqcluster import AsyncClient, Client, LmqError, SyncMessage

from .client_cluster import Fate, ModelCluster, Request, ScriptedNode


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    """A running node."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = ScriptedNode(ModelCluster())
    asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    yield server
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


Threads = Callable[[], list[str]]


@pytest.fixture
def threads() -> Threads:
    """Return the names of new client threads since the start of the test: pools of other tests may keep some."""
    before = set(threading.enumerate())
    return lambda: [one.name for one in threading.enumerate() if one.name == "lmqcluster-client" and one not in before]


def test_every_method_has_its_twin_with_the_same_parameters() -> None:
    for name, method in inspect.getmembers(AsyncClient, inspect.isfunction):
        if not name.startswith("_"):
            theirs = list(inspect.signature(method).parameters.values())
            ours = list(inspect.signature(getattr(Client, name)).parameters.values())
            assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], name
    options = list(inspect.signature(AsyncClient.__init__).parameters)[2:]
    assert list(inspect.get_annotations(inspect.getmodule(Client).ClientOptions)) == options


def test_all_methods(node: ScriptedNode, threads: Threads) -> None:
    with Client(node.address) as client:
        assert client.push("q", "x") == "ok"
        assert client.push_many("q", [1, 2, 3, 4, 5], keys=["a", "b", "c", "d", "e"]) == ["ok"] * 5
        assert client.push_all("q", 6) == "ok"
        first = client.pull("q", 0)
        assert isinstance(first, SyncMessage)
        assert (first.queue, first.content, first.text) == ("q", b"x", "x")
        assert first.extend() is True
        assert first.ack() is True
        second = client.pull_any("q", 0)
        assert second is not None
        assert second.nack() is True
        messages = client.pull_many("q", 10)
        assert [message.content for message in messages] == [2, 3, 4, 5, 6, 1]
        ids = [message.id for message in messages]
        assert client.retain_many("q", ids) == [True] * 6
        assert client.retain("q", ids[0]) is True
        assert client.done("q", ids[0]) is True
        assert client.done_many("q", ids[:2]) == [False, True]
        assert client.release("q", ids[2]) is True
        assert client.release_many("q", ids[3:4]) == [True]
        assert client.put_back("q", ids[4]) is True
        assert client.put_back_many("q", ids[5:]) == [True]
        assert client.pull("empty", 0.01) is None
        assert client.delete("q") == "ok"
        assert client.update_props("q", {"retry": 1}) == "ok"
        assert client.set_default_props([]) == "ok"
        assert client.get_default_props() == [("^a", {"pack": 1.5})]
        assert client.cluster()["self"] == "n1"
        assert client.address == ("127.0.0.1", node.port)
    assert threads() == []


def test_message_as_a_context(node: ScriptedNode, caplog: pytest.LogCaptureFixture) -> None:
    with Client(node.address) as client:
        client.push_many("q", [1, 2, 3, 4])
        first, second, third, fourth = client.pull_many("q", 4)
        with first:
            pass
        with pytest.raises(ZeroDivisionError), second:
            raise ZeroDivisionError
        with pytest.raises(KeyboardInterrupt), third:
            raise KeyboardInterrupt
        with caplog.at_level(logging.WARNING, "lmqcluster.client"), fourth:
            node.cluster.leases.clear()
        assert [verb for verb, _ in node.cluster.settled] == ["done", "release", "put_back"]
        assert "ended before its ack" in caplog.text


def test_iterating(node: ScriptedNode) -> None:
    with Client(node.address, decode=True) as client:
        client.push_many("q", list("abcdef"))
        with client.messages("q", prefetch=4) as messages:
            assert next(messages).content == "a"
        assert sorted(message.content for message in client.messages("q", timeout=0)) == list("bcdef")


def test_threads_share_connections(node: ScriptedNode) -> None:
    with Client(node.address) as client, ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda number: client.push("q", number), range(200))) == {"ok"}
        assert sorted(node.cluster.stored) == list(range(200))
        # One for concurrent calls, and one for sequential calls.
        assert node.connections <= 2


def test_errors_and_closing(node: ScriptedNode, threads: Threads) -> None:
    client = Client(node.address)
    with pytest.raises(LmqError, match="MessagePack"):
        client.push("q", object())
    client.close()
    client.close()
    with pytest.raises(LmqError, match="closed"):
        client.push("q", 1)
    with pytest.raises(ValueError, match="HOST:PORT"):
        Client("nonsense:x")
    assert threads() == []


def test_entering_fails_if_no_node_answers(threads: Threads) -> None:
    with pytest.raises(LmqError) as caught, Client("127.0.0.1:1", timeout_s=0.1):
        pass
    assert caught.value.code == "unreachable"
    assert threads() == []


def test_a_dropped_client_leaves_no_thread(threads: Threads) -> None:
    client = Client("127.0.0.1:1")
    assert threads() == ["lmqcluster-client"]
    del client
    gc.collect()
    assert threads() == []


def test_an_interrupted_pull_is_cancelled_at_the_node(node: ScriptedNode) -> None:
    main = threading.main_thread().ident
    assert main is not None

    def script(request: Request) -> Fate:
        if request.method == "pull":
            signal.pthread_kill(main, signal.SIGINT)
        return Fate.ANSWER

    # A test runner may have disabled interrupts in its processes.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Client(node.address) as client:
            node.script = script
            with pytest.raises(KeyboardInterrupt):
                client.pull("q")
            client.ping()
            assert [method for method, _ in node.notifications] == ["cancel"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_blocking_client_refuses_to_block_its_own_loop(node: ScriptedNode) -> None:
    with Client(node.address) as client:

        async def inside() -> str:
            return client.ping()

        with pytest.raises(RuntimeError, match="own event loop"):
            client._thread.run(inside)


def test_a_forked_process_does_not_use_the_client(node: ScriptedNode) -> None:
    with Client(node.address) as client:
        for number in range(10):
            client.push("q", number)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(RuntimeError) as refused:
                    client.push("q", "from the child")
                client.close()
                os.write(write, str(refused.value).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        with os.fdopen(read) as output:
            assert "make a client in each process" in output.read()
        assert os.waitpid(child, 0)[1] == 0
        client.push("q", 10)
        assert node.cluster.stored == list(range(11))


def test_a_client_may_be_collected_in_its_own_thread() -> None:
    client = Client("127.0.0.1:1")
    thread, loop = client._thread._thread, client._thread.loop
    failed: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _loop, context: failed.append(context))
    loop.call_soon_threadsafe(client._end)
    thread.join(60)
    assert not thread.is_alive()
    assert failed == []
