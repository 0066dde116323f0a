"""The fast path of `Client`: a separate connection for sequential calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmqcluster import Client, LmqError
from lmqcluster.client import Backoff
from lmqcluster.client.blocking import fast_path as direct

from .client_cluster import Fate, ModelCluster, Request, ScriptedNode
from .test_resend_property import PLAN, plan_script

T = TypeVar("T")


class Nodes:
    """Nodes of one cluster on an event loop in another thread."""

    def __init__(self, count: int) -> None:
        self.cluster = ModelCluster()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.nodes = [ScriptedNode(self.cluster) for _ in range(count)]
        for node in self.nodes:
            self.run(node.start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def until(self, node: ScriptedNode, method: str) -> None:
        """Wait until a node has received a request or notification."""
        self.run(
            node.until(
                lambda: (
                    method in [one.method for one in node.requests] or method in [one for one, _ in node.notifications]
                )
            )
        )

    @property
    def addresses(self) -> list[str]:
        return [node.address for node in self.nodes]

    def stop(self) -> None:
        for node in self.nodes:
            self.run(node.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@contextlib.contextmanager
def nodes_of(count: int) -> Iterator[Nodes]:
    made = Nodes(count)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with nodes_of(2) as made:
        yield made


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the fast path from the first call, and again at once after errors."""
    monkeypatch.setattr(direct, "_FIRST_CALLS", 0)
    monkeypatch.setattr(direct, "_PAUSE_S", 0.0)


def client_of(nodes: Nodes, **options: Any) -> Client:
    return Client(nodes.addresses, backoff=Backoff(first_s=0.0005, max_s=0.002), **options)


def test_a_program_that_calls_often_gets_a_second_connection(nodes: Nodes) -> None:
    with client_of(nodes) as client:
        for number in range(4):
            client.push("q", number)
        assert nodes.nodes[0].connections == 1
        for number in range(4, 10):
            client.push("q", number)
        messages = [client.pull("q", 0) for _ in range(5)] + client.pull_many("q", 9)
        assert [message and message.content for message in messages] == list(range(10))
        assert all(message.ack() for message in messages if message is not None)
        assert client.pull("q", 0.01) is None
        assert nodes.nodes[0].connections == 2
    assert nodes.nodes[1].connections == 0


@pytest.mark.usefixtures("short")
def test_the_fast_path_follows_the_session(nodes: Nodes) -> None:
    first, second = nodes.nodes
    with client_of(nodes) as client:
        for number in range(3):
            client.push("q", number)
        nodes.run(first.stop())
        for number in range(3, 6):
            client.push("q", number)
        assert client.address == ("127.0.0.1", second.port)
        assert client._direct._line is not None
        assert client._direct._line.address == client.address
    assert nodes.cluster.stored == list(range(6))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("error", "code"), [("bad_name: no", "bad_name"), ("full: it is", "full"), ("nonsense", "internal")]
)
def test_a_refusal_is_raised_and_the_connection_stays(nodes: Nodes, error: str, code: str) -> None:
    node = nodes.nodes[0]
    with client_of(nodes) as client:
        client.push("q", 0)
        node.script = lambda request: error if request.method == "push" else Fate.ANSWER
        with pytest.raises(LmqError) as raised:
            client.push("q", 1)
        assert raised.value.code == code
        node.script = lambda _: Fate.ANSWER
        client.push("q", 2)
        assert client.done("q", "0" * 36) is False
        with pytest.raises(LmqError, match="MessagePack"):
            client.push("q", object())
        client.push("q", 3)
        assert node.connections == 2
    assert nodes.cluster.stored == [0, 2, 3]


@settings(deadline=None, max_examples=150)
@given(plan=PLAN, count=st.integers(1, 40))
def test_every_push_is_stored_exactly_once_and_in_order(plan: list[int | Fate | str], count: int) -> None:
    with pytest.MonkeyPatch.context() as patch, nodes_of(2) as nodes:
        patch.setattr(direct, "_FIRST_CALLS", 0)
        patch.setattr(direct, "_PAUSE_S", 0.0)
        script = plan_script(plan, nodes.cluster)
        for node in nodes.nodes:
            node.script = script
        with client_of(nodes) as client:
            for number in range(count):
                assert client.push("q", number) == "ok"
            nodes.loop.call_soon_threadsafe(nodes.cluster.apply_late)
        assert nodes.cluster.stored == list(range(count))


TROUBLE = [Fate.DROP_BEFORE, Fate.DROP_AFTER, Fate.REFUSE, Fate.DOUBT]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("fate", TROUBLE)
@pytest.mark.parametrize("method", ["done", "release", "done_many", "pull", "pull_many"])
def test_other_calls_survive_too(nodes: Nodes, fate: Fate, method: str) -> None:
    node = nodes.nodes[0]
    if fate is Fate.DOUBT and method.startswith("pull"):
        pytest.skip("a node always knows the outcome of a pull")
    with client_of(nodes) as client:
        client.push_many("q", [1, 2])
        message = client.pull("q", 0)
        assert message is not None
        fates = iter([fate])
        node.script = lambda request: next(fates, Fate.ANSWER) if request.method == method else Fate.ANSWER
        match method:
            case "done":
                assert client.done("q", message.id) is True
            case "release":
                assert client.release("q", message.id) is True
            case "done_many":
                assert client.done_many("q", [message.id]) == [True]
            case "pull":
                nodes.run(_push(nodes.cluster, 3))
                found = client.pull("q", 60)
                assert found is not None
                assert found.content in {2, 3}
            case _:
                nodes.run(_push(nodes.cluster, 3))
                assert client.pull_many("q", 1, 60)[0].content in {2, 3}
        assert list(fates) == []


async def _push(cluster: ModelCluster, content: int) -> None:
    cluster.push(b"q", [content], None, 0)


@pytest.mark.usefixtures("short")
def test_a_pull_that_acknowledges_is_not_repeated(nodes: Nodes) -> None:
    with client_of(nodes) as client:
        client.push("q", 1)
        nodes.nodes[0].script = lambda request: Fate.DROP_AFTER if request.method == "pull" else Fate.ANSWER
        with pytest.raises(LmqError, match="acknowledged and lost"):
            client.pull("q", 60, auto_ack=True)


@pytest.mark.usefixtures("short")
def test_a_non_repeatable_call_is_not_sent_over_a_closed_connection(nodes: Nodes) -> None:
    node = nodes.nodes[0]

    async def end_the_idle_one() -> None:
        # The node closes idle connections, here the second one.
        idle = next(one for one in node._open if one._transport.get_extra_info("peername")[1] == port)
        idle.cut()
        await node.until(lambda: idle not in node._open)

    with client_of(nodes) as client:
        client.push("q", 1)
        assert client._direct._line is not None
        port = client._direct._line._socket.getsockname()[1]
        nodes.run(end_the_idle_one())
        assert client.push_all(".*", 2) == "ok"
        pulled = client.pull("q", 60, auto_ack=True)
        assert pulled is not None
        assert pulled.content == 1


@pytest.mark.usefixtures("short")
def test_a_silent_node_is_pinged_and_then_left(nodes: Nodes) -> None:
    first, _ = nodes.nodes
    with client_of(nodes, heartbeat_s=0.05) as client:
        client.push("q", 0)
        # It answers pings: an answer may take any time.
        first.script = lambda request: Fate.HOLD if request.method == "push" else Fate.ANSWER
        with ThreadPoolExecutor(1) as pool:
            first.requests.clear()
            push = pool.submit(client.push, "q", 1)
            nodes.until(first, "ping")
            nodes.loop.call_soon_threadsafe(first.answer_held)
            assert push.result(60) == "ok"
        first.script = lambda _: Fate.HOLD
        assert client.push("q", 2) == "ok"
    assert nodes.cluster.stored == [0, 1, 2]


@pytest.fixture
def interruptible() -> Iterator[None]:
    # A test runner may have disabled interrupts in its processes.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupting(method: str, fate: Fate) -> Any:
    main = threading.main_thread().ident
    assert main is not None

    def script(request: Request) -> Fate:
        if request.method != method:
            return Fate.ANSWER
        signal.pthread_kill(main, signal.SIGINT)
        return fate

    return script


@pytest.mark.usefixtures("short", "interruptible")
def test_an_interrupted_pull_returns_its_messages(nodes: Nodes) -> None:
    node = nodes.nodes[0]
    with client_of(nodes) as client:
        client.push("q", 1)
        node.script = _interrupting("pull", Fate.HOLD)  # It is applied, and the answer is in flight.
        with pytest.raises(KeyboardInterrupt):
            client.pull("q")
        nodes.until(node, "cancel")
        node.script = lambda _: Fate.ANSWER
        nodes.loop.call_soon_threadsafe(node.answer_held)
        nodes.until(node, "put_back_many")
        message = client.pull("q", 60)
        assert message is not None
        assert message.content == 1


@pytest.mark.usefixtures("short", "interruptible")
def test_an_interrupted_push_confuses_none_after_it(nodes: Nodes) -> None:
    node = nodes.nodes[0]
    with client_of(nodes) as client:
        client.push("q", 0)
        node.script = _interrupting("push", Fate.HOLD)
        with pytest.raises(KeyboardInterrupt):
            client.push("q", 1)
        node.script = lambda request: Fate.DROP_AFTER if request.arguments[1:] == [3] else Fate.ANSWER
        fates = iter([Fate.ANSWER, Fate.DROP_AFTER])
        node.script = lambda request: next(fates, Fate.ANSWER) if request.method == "push" else Fate.ANSWER
        client.push("q", 2)
        client.push("q", 3)
        client.push("q", 4)
    assert nodes.cluster.stored == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("short")
def test_closing_ends_a_pull_that_waits(nodes: Nodes) -> None:
    client = client_of(nodes)
    client.push("q", 0)
    client.pull("q")
    with ThreadPoolExecutor(1) as pool:
        pull = pool.submit(client.pull, "q")
        nodes.run(nodes.nodes[0].until(lambda: len(nodes.nodes[0]._open) == 2 and _waits(nodes.nodes[0])))
        client.close()
        with pytest.raises(LmqError, match="closed"):
            pull.result(60)
    assert [method for method, _ in nodes.nodes[0].notifications] == ["cancel"]


def _waits(node: ScriptedNode) -> bool:
    return any(connection._waiting for connection in node._open)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("grace_s", [0, 60])
def test_closing_waits_for_the_call_of_another_thread(nodes: Nodes, grace_s: float) -> None:
    node = nodes.nodes[0]
    client = client_of(nodes)
    client.push("q", 0)
    node.script = lambda request: Fate.HOLD if request.method == "push" else Fate.ANSWER
    with ThreadPoolExecutor(2) as pool:
        push = pool.submit(client.push, "q", 1)
        nodes.run(node.until(lambda: len(node._held) == 1))
        closing = pool.submit(client.close, grace_s)
        if grace_s:
            nodes.loop.call_soon_threadsafe(node.answer_held)
            assert push.result(60) == "ok"
        else:
            with pytest.raises(LmqError) as raised:
                push.result(60)
            assert raised.value.code == "unknown_outcome"
        closing.result(60)


@pytest.mark.usefixtures("short")
def test_closing_abandons_a_push_in_doubt(nodes: Nodes) -> None:
    client = client_of(nodes)
    client.push("q", 0)
    for node in nodes.nodes:
        node.script = lambda request: Fate.DROP_AFTER if request.method == "push" else Fate.ANSWER
    with ThreadPoolExecutor(1) as pool:
        push = pool.submit(client.push, "q", 1)
        nodes.run(nodes.nodes[1].until(lambda: "push" in nodes.nodes[1].methods()))
        client.close(0)
        with pytest.raises(LmqError) as raised:
            push.result(60)
    assert raised.value.code == "unknown_outcome"


@pytest.mark.usefixtures("short")
def test_without_a_second_connection_calls_use_the_event_loop(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    node = nodes.nodes[0]
    with client_of(nodes) as client, caplog.at_level(logging.DEBUG, "lmqcluster.client"):
        node.script = lambda request: "overloaded: full" if request.method == "producer" else Fate.ANSWER
        for number in range(3):
            client.push("q", number)
        assert client._direct._line is None
    assert nodes.cluster.stored == [0, 1, 2]
    assert "no second connection" in caplog.text


@pytest.mark.usefixtures("short")
def test_a_node_that_does_not_answer_gets_no_second_connection(nodes: Nodes) -> None:
    node = nodes.nodes[0]
    with client_of(nodes, connect_timeout_s=0.05, heartbeat_s=600) as client:
        client.ping()
        node.script = lambda request: Fate.HOLD if request.method == "producer" else Fate.ANSWER
        client.push("q", 0)
        assert client._direct._line is None
    assert nodes.cluster.stored == [0]


def test_large_calls_use_the_event_loop(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_FIRST_CALLS", 0)
    with client_of(nodes) as client:
        client.push("q", "small")
        client.push("q", b"x" * 100_000)
        client.push("q", "small again")
    assert [len(one) for one in nodes.cluster.stored] == [5, 100_000, 11]
