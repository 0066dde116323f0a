"""kombu's interface on lmqcluster, without Celery."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue

import lmqcluster.integrations.kombu  # noqa: F401 - registers lmq://
from lmqcluster import LmqError

from .cluster import Cluster, wait_for

PATIENCE_S = 120.0


@pytest.fixture
def connect(shared_cluster: Cluster, queue_name: str) -> Iterator[Callable[..., Connection]]:
    """Creates connections with unique queues."""
    made: list[Connection] = []

    def connect(**options: Any) -> Connection:
        url = f"lmq://{','.join(shared_cluster.rpc_addresses)}/{queue_name}"
        made.append(Connection(url, transport_options=options))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


def tasks(name: str = "tasks") -> Queue:
    return Queue(name, Exchange(name, "direct"), routing_key=name)


class Taker:
    """Consumes a queue and keeps the messages."""

    def __init__(self, connection: Connection, queue: Queue, prefetch: int = 0, **options: Any) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.consumer = Consumer(connection.channel(), [queue], on_message=self.messages.append, **options)
        self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def wait(self, count: int) -> list[Any]:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.messages) < count:
            self.connection.drain_events(timeout=deadline - time.monotonic())
        return [message.payload for message in self.messages]

    def has_no_more(self, seconds: float = 0.3) -> bool:
        try:
            self.connection.drain_events(timeout=seconds)
        except TimeoutError:
            return True
        return False


def test_acks_rejects_and_prefetch(connect: Callable[..., Connection]) -> None:
    connection = connect()
    producer = Producer(connection.channel())
    for number in range(6):
        producer.publish({"number": number}, routing_key="tasks", declare=[tasks()])
    taker = Taker(connection, tasks(), prefetch=3)
    assert taker.wait(3) == [{"number": 0}, {"number": 1}, {"number": 2}]
    assert taker.has_no_more()
    assert not taker.messages[1].delivery_info["redelivered"]
    taker.messages[1].requeue()
    # The returned message is in its old position, before those that were never taken.
    assert taker.wait(4)[3:] == [{"number": 1}]
    taker.messages[0].ack()
    taker.messages[2].reject()
    assert taker.wait(6)[4:] == [{"number": 3}, {"number": 4}]
    taker.messages[3].ack()
    taker.consumer.cancel()
    taker.consumer.channel.close()
    other = Taker(connect(), tasks())
    assert other.wait(3) == [{"number": 3}, {"number": 4}, {"number": 5}]
    for message in other.messages:
        message.ack()
    assert tasks()(connection.channel()).queue_declare(passive=True).message_count == 0


def test_priorities_due_times_and_expiry_are_the_clusters(connect: Callable[..., Connection]) -> None:
    connection = connect()
    producer = Producer(connection.channel(), routing_key="tasks")
    tasks()(connection.channel()).declare()
    now = datetime.now(UTC)
    producer.publish("expired", expiration=0.001)
    producer.publish("late", headers={"task": "t", "eta": (now + timedelta(seconds=3)).isoformat()})
    producer.publish("much later", headers={"task": "t", "eta": (now + timedelta(days=9)).isoformat()})
    producer.publish("plain")
    producer.publish("urgent", priority=9)
    producer.publish("rather urgent", priority=5)
    taker = Taker(connection, tasks(), prefetch=1)
    for count in range(1, 5):
        taker.wait(count)[-1]
        taker.messages[-1].ack()
    assert [message.payload for message in taker.messages] == ["urgent", "rather urgent", "plain", "late"]
    assert time.time() >= now.timestamp() + 3
    assert tasks()(connection.channel()).purge() == 1


def test_fanout_reaches_all_processes_and_topics_their_queues(connect: Callable[..., Connection]) -> None:
    exchange = Exchange("news", "fanout")
    takers = [
        Taker(connect(), Queue(f"reader {number}", exchange, exclusive=True, auto_delete=True), no_ack=True)
        for number in range(2)
    ]
    connection = connect()
    producer = Producer(connection.channel())
    producer.publish("hello", exchange=exchange, declare=[exchange])
    assert [taker.wait(1) for taker in takers] == [["hello"], ["hello"]]
    takers[0].consumer.cancel()
    producer.publish("again", exchange=exchange)
    assert takers[1].wait(2) == ["hello", "again"]
    topics = Exchange("topics", "topic")
    bound = [Queue("all", topics, routing_key="#"), Queue("some", topics, routing_key="a.*")]
    for key in ("a.b", "c.d"):
        producer.publish(key, exchange=topics, routing_key=key, declare=bound)
    found = {queue.name: Taker(connection, queue) for queue in bound}
    assert (found["all"].wait(2), found["some"].wait(1)) == (["a.b", "c.d"], ["a.b"])


def test_a_foreign_message_is_dead_lettered(connect: Callable[..., Connection]) -> None:
    connection = connect()
    channel = connection.channel()
    tasks()(channel).declare()
    transport = connection.transport
    stored = transport.stored_name("tasks")
    for content in (b"\xff", b"[]", b'{"properties": 3}', b'{"body": "x", "properties": {"body_encoding": "rot13"}}'):
        transport.lmq.push(stored, content)
    Producer(channel).publish("good", routing_key="tasks")
    taker = Taker(connection, tasks())
    assert taker.wait(1) == ["good"]
    assert transport.lmq.backlog(queue=f"{stored}.unreadable").messages == 4


def test_a_message_stays_leased_while_the_session_is_renewed(connect: Callable[..., Connection]) -> None:
    connection = connect(lease=2)
    Producer(connection.channel()).publish("long", routing_key="tasks", declare=[tasks()])
    taker = Taker(connection, tasks(), prefetch=1)
    taker.wait(1)
    other = connect()
    other.connect()
    stored = other.transport.stored_name("tasks")
    assert other.transport.lmq.pull(stored, 5) is None
    # An ended process renews nothing.
    connection.transport.lmq._run(connection.transport.session._session.abandon)
    message = other.transport.lmq.pull(stored, PATIENCE_S)
    assert message is not None
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0)
    taker.messages[0].ack()
    assert message.ack()
    # It continues in another session.
    Producer(connection.channel()).publish("again", routing_key="tasks")
    assert taker.wait(2)[1:] == ["again"]
    taker.messages[1].ack()


def test_messages_of_an_ended_process_return_to_their_old_positions(connect: Callable[..., Connection]) -> None:
    connection = connect(lease=2)
    producer = Producer(connection.channel(), routing_key="tasks")
    for number in range(4):
        producer.publish(number, declare=[tasks()])
    gone = Taker(connection, tasks(), prefetch=2)
    assert gone.wait(2) == [0, 1]
    gone.consumer.cancel()
    connection.transport.lmq._run(connection.transport.session._session.abandon)
    other = connect()
    queue = tasks()(other.channel())
    wait_for(lambda: queue.queue_declare(passive=True).message_count == 4, "the end of the session")
    taker = Taker(other, tasks())
    assert taker.wait(4) == [0, 1, 2, 3]
    for message in taker.messages:
        message.ack()


def test_settings_of_an_operator_are_kept_and_poison_messages_are_dead_lettered(
    shared_cluster: Cluster, connect: Callable[..., Connection]
) -> None:
    connection = connect(lease=1)
    connection.connect()
    lmq, stored = connection.transport.lmq, connection.transport.stored_name("tasks")
    lmq.update_props(stored, {"retry": 2, "dead_letter_queue": f"{stored}.poison", "max_age": 500})
    queue = Queue("tasks", Exchange("tasks"), routing_key="tasks", queue_arguments={"x-message-ttl": 1_000})
    Producer(connection.channel()).publish("poison", routing_key="tasks", declare=[queue])
    shown = shared_cluster.nodes[0].get_json(f"/v1/queues/{stored}")["own_properties"]
    assert (shown["retry"], shown["max_age"], shown["dead_letter_queue"]) == (2, 500, f"{stored}.poison")
    first = Taker(connection, queue, prefetch=1)
    assert first.wait(1) == ["poison"]
    assert not first.messages[0].delivery_info["redelivered"]
    first.messages[0].requeue()  # as for a child of a worker that has died with its task
    assert first.wait(2)[1:] == ["poison"]
    assert first.messages[1].delivery_info["redelivered"]
    # The process has ended, and another one dies with the message too.
    connection.transport.lmq._run(connection.transport.session._session.abandon)
    second = connect(lease=1)
    assert Taker(second, queue, prefetch=1).wait(1) == ["poison"]
    second.transport.lmq._run(second.transport.session._session.abandon)
    letter = lmq.pull(f"{stored}.poison", PATIENCE_S)
    assert letter is not None
    assert letter.ack()


def test_the_names_of_fanout_exchanges_and_queues_do_not_collide(connect: Callable[..., Connection]) -> None:
    connection = connect()
    exchanges = [Exchange(name, "fanout") for name in ("logs", "logs/audit", "logs%2Faudit")]
    takers = [Taker(connection, Queue("reader", exchange)) for exchange in exchanges[:1]]
    takers += [Taker(connect(), Queue(f"reader {number}", one)) for number, one in enumerate(exchanges[1:])]
    takers += [Taker(connect(), tasks("fanout/logs/x")), Taker(connect(), tasks("fanout%/logs/x"))]
    producer = Producer(connection.channel())
    for exchange in exchanges:
        producer.publish(f"to {exchange.name}", exchange=exchange, declare=[exchange])
    for name in ("fanout/logs/x", "fanout%/logs/x"):
        producer.publish(f"to {name}", routing_key=name, declare=[tasks(name)])
    expected = ["logs", "logs/audit", "logs%2Faudit", "fanout/logs/x", "fanout%/logs/x"]
    assert [taker.wait(1) for taker in takers] == [[f"to {name}"] for name in expected]
    assert all(taker.has_no_more(0) for taker in takers)


def test_tasks_are_due_up_to_the_year_9999(connect: Callable[..., Connection]) -> None:
    connection = connect()
    producer = Producer(connection.channel(), routing_key="tasks")
    for year in (1960, 2300, 9999):
        eta = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC).isoformat()
        producer.publish(year, headers={"task": "t", "eta": eta}, declare=[tasks()])
    taker = Taker(connection, tasks())
    assert taker.wait(1) == [1960]
    taker.messages[0].ack()
    assert taker.has_no_more(0)
    assert connection.transport.lmq.purge(connection.transport.stored_name("tasks")) == 2


def test_messages_can_be_got_without_consumers(connect: Callable[..., Connection]) -> None:
    connection = connect()
    queue = tasks()(connection.channel())
    queue.declare()
    assert queue.get() is None
    Producer(connection.channel()).publish("one", routing_key="tasks")
    message = wait_for(queue.get, "the message")
    assert message.payload == "one"
    message.ack()
    queue.delete()
    with pytest.raises(connection.channel_errors):
        queue.queue_declare(passive=True)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="token"):
        Connection("lmq://user:secret@127.0.0.1:1").transport  # noqa: B018
    with pytest.raises(ValueError, match="lease"):
        Connection("lmq://127.0.0.1:1", transport_options={"lease": 0}).transport  # noqa: B018
    connection = Connection("lmq://127.0.0.1:1", transport_options={"timeout_s": 0.5})
    with pytest.raises(LmqError):
        connection.transport.establish_connection()
    connection.close()
