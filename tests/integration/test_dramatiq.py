"""dramatiq on lmqcluster: the behaviour that every dramatiq broker must have, and workers that are killed."""

from __future__ import annotations

import http.server
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

dramatiq = pytest.importorskip("dramatiq")

from dramatiq import Message, Worker  # noqa: E402
from dramatiq.errors import QueueJoinTimeout, QueueNotFound  # noqa: E402
from dramatiq.middleware import Retries  # noqa: E402

from lmqcluster.integrations.dramatiq import LmqBroker  # noqa: E402

from .cluster import Cluster, clean_environment, reaper, wait_for  # noqa: E402

PATIENCE_MS = 120_000


@pytest.fixture
def broker(shared_cluster: Cluster, queue_name: str) -> Iterator[LmqBroker]:
    made = LmqBroker(shared_cluster.rpc_addresses, namespace=queue_name, lease=10)
    made.emit_after("process_boot")
    yield made
    made.close()


@pytest.fixture
def worker(broker: LmqBroker) -> Iterator[Worker]:
    made = Worker(broker, worker_timeout=100, worker_threads=4)
    yield made
    made.stop()


def test_actors_run_and_join_waits_for_them(broker: LmqBroker, worker: Worker) -> None:
    done: list[int] = []

    @dramatiq.actor(broker=broker)
    def add(number: int) -> None:
        time.sleep(0.01)
        done.append(number)

    worker.start()
    for number in range(100):
        add.send(number)
    broker.join(add.queue_name, timeout=PATIENCE_MS)
    worker.join()
    assert Counter(done) == Counter(range(100))


def test_a_delay_is_the_clusters(broker: LmqBroker, worker: Worker) -> None:
    done: list[tuple[str, float]] = []

    @dramatiq.actor(broker=broker)
    def note(name: str) -> None:
        done.append((name, time.monotonic()))

    started = time.monotonic()
    note.send_with_options(args=("late",), delay=1000)
    note.send("now")
    with pytest.raises(QueueJoinTimeout):
        broker.join(note.queue_name, timeout=100)
    worker.start()
    broker.join(note.queue_name, timeout=PATIENCE_MS)
    assert [name for name, _ in done] == ["now", "late"]
    assert done[1][1] - started >= 1
    assert broker.get_declared_delay_queues() == set()


def test_an_actor_that_fails_is_retried_and_then_a_dead_letter(broker: LmqBroker, worker: Worker) -> None:
    attempts = Counter[str]()

    @dramatiq.actor(broker=broker, max_retries=2, min_backoff=10, max_backoff=20)
    def fail(name: str) -> None:
        attempts[name] += 1
        if name == "always" or attempts[name] == 1:
            raise RuntimeError(name)

    assert any(isinstance(one, Retries) for one in broker.middleware)
    fail.send("always")
    fail.send("once")
    worker.start()
    broker.join(fail.queue_name, timeout=PATIENCE_MS)
    assert attempts == {"always": 3, "once": 2}
    letter = broker.client.pull(broker.stored_name("default.XQ"), 60)
    assert letter is not None
    assert Message.decode(letter.content).args == ("always",)
    assert letter.attributes["lmq.reason"] == "RuntimeError: always"
    letter.put_back()
    broker.flush_all()
    assert broker.client.pull(broker.stored_name("default.XQ"), 0) is None


def test_priorities_are_the_clusters(broker: LmqBroker) -> None:
    def make(name: str, **options: int) -> None:
        dramatiq.actor(lambda: None, broker=broker, actor_name=name, **options)
        broker.enqueue(Message("default", name, (), {}, {}))

    make("low", priority=10)
    make("plain")
    make("high", priority=-10)
    make("highest", broker_priority=20)
    consumer = broker.consume("default", prefetch=4, timeout=1000)
    order = [message.actor_name for message in (next(consumer) for _ in range(4)) if message is not None]
    assert order == ["highest", "high", "plain", "low"]
    consumer.close()


def test_prefetch_requeue_and_returned_messages(broker: LmqBroker) -> None:
    broker.declare_queue("q")
    for number in range(5):
        broker.enqueue(Message("q", "a", (number,), {}, {}))
    consumer = broker.consume("q", prefetch=3, timeout=200)
    taken = [next(consumer) for _ in range(4)]
    assert [message and message.args[0] for message in taken] == [0, 1, 2, None]
    consumer.ack(taken[0])  # type: ignore[arg-type]
    consumer.requeue([taken[1]])  # type: ignore[list-item]
    again = next(consumer)
    assert again is not None
    assert again.args == (1,)
    consumer.close()
    rest = broker.client.pull_many(broker.stored_name("q"), 10, 60)
    assert [Message.decode(message.content).args[0] for message in rest] == [3, 4]
    with pytest.raises(QueueNotFound):
        broker.consume("unknown")
    with pytest.raises(QueueNotFound):
        broker.enqueue(Message("unknown", "a", (), {}, {}))


def test_an_unreadable_message_is_dead_lettered(broker: LmqBroker) -> None:
    broker.declare_queue("q")
    broker.client.push(broker.stored_name("q"), b"\xffnot a message")
    broker.enqueue(Message("q", "a", (1,), {}, {}))
    consumer = broker.consume("q", prefetch=2, timeout=1000)
    found = wait_for(lambda: next(consumer), "the message")
    assert found.args == (1,)
    letter = broker.client.pull(broker.stored_name("q.XQ"), 60)
    assert letter is not None
    assert letter.content == b"\xffnot a message"
    consumer.close()


def test_a_lease_is_renewed_while_an_actor_runs(shared_cluster: Cluster, queue_name: str) -> None:
    broker = LmqBroker(shared_cluster.rpc_addresses, namespace=queue_name, lease=3)
    runs: list[int] = []
    release = threading.Event()

    @dramatiq.actor(broker=broker)
    def long() -> None:
        runs.append(1)
        assert release.wait(120)

    worker = Worker(broker, worker_timeout=100, worker_threads=2)
    worker.start()
    try:
        long.send()
        wait_for(lambda: runs, "the run")
        assert broker.client.pull(broker.stored_name("default"), 7) is None
        release.set()
        broker.join("default", timeout=PATIENCE_MS)
    finally:
        release.set()
        worker.stop()
        broker.close()
    assert runs == [1]


def test_a_forked_process_can_enqueue(broker: LmqBroker) -> None:
    broker.declare_queue("q")
    for number in range(10):
        broker.enqueue(Message("q", "a", (number,), {}, {}))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            broker.enqueue(Message("q", "a", (10,), {}, {}))
            broker.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    broker.enqueue(Message("q", "a", (11,), {}, {}))
    messages = broker.client.pull_many(broker.stored_name("q"), 20, 60)
    assert [Message.decode(message.content).args[0] for message in messages] == list(range(12))


APPLICATION = """
import os, time
import dramatiq
from lmqcluster.integrations.dramatiq import LmqBroker

dramatiq.set_broker(LmqBroker(os.environ["NODES"], namespace=os.environ["NAMESPACE"], lease=3))

@dramatiq.actor
def work(number):
    with open(os.environ["DONE"], "a") as done:
        done.write(f"{number}\\n")
    if number == 7 and os.path.exists(os.environ["HOLD"]):
        time.sleep(600)
"""


def test_tasks_of_a_killed_worker_run_again(shared_cluster: Cluster, queue_name: str, tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    hold = tmp_path / "hold"
    hold.touch()
    done = tmp_path / "done"
    names = {
        "NODES": ",".join(shared_cluster.rpc_addresses),
        "NAMESPACE": queue_name,
        "DONE": str(done),
        "HOLD": str(hold),
    }
    environment = clean_environment({**names, "PYTHONPATH": str(tmp_path)})
    command = [sys.executable, "-m", "dramatiq", "application", "--processes", "1", "--threads", "2"]

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        reaper.tell("+", process.pid)
        return process

    def runs() -> Counter[int]:
        return Counter(int(line) for line in done.read_text().split()) if done.exists() else Counter()

    broker = LmqBroker(shared_cluster.rpc_addresses, namespace=queue_name)
    broker.declare_queue("default")
    try:
        for number in range(60):
            broker.enqueue(Message("default", "work", (number,), {}, {}))
        first = start()
        wait_for(lambda: runs()[7], "the long one")
        end_group(first)
        hold.unlink()
        second = start()
        wait_for(lambda: len(runs()) == 60, "all of them")
        wait_for(lambda: runs()[7] == 2, "the long one again")
        broker.join("default", timeout=PATIENCE_MS)
        end_group(second)
    finally:
        broker.close()
    # The killed worker had a few tasks in flight; nothing else runs twice.
    assert sum(runs().values()) - 60 <= 2 * 8


BROKER_LINE = """
import dramatiq
from lmqcluster.integrations.dramatiq import LmqBroker
dramatiq.set_broker(LmqBroker({nodes!r}, namespace={namespace!r}))
"""


class Words(http.server.BaseHTTPRequestHandler):
    """Answers with as many words as the path says."""

    def do_GET(self) -> None:
        body = " ".join(["word"] * int(self.path[1:])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Discard the log message."""


def test_the_example_of_dramatiq_needs_one_line(shared_cluster: Cluster, queue_name: str, tmp_path: Path) -> None:
    """The application of the quickstart, from the description of the installed package."""
    readme = importlib.metadata.metadata("dramatiq")["Description"]
    (example,) = re.findall(r"^``` python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    line = BROKER_LINE.format(nodes=",".join(shared_cluster.rpc_addresses), namespace=queue_name)
    (tmp_path / "example.py").write_text(line + example)
    environment = clean_environment({"PYTHONPATH": str(tmp_path)})
    log = tmp_path / "log"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Words) as server, log.open("wb") as output:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        workers = subprocess.Popen(
            [sys.executable, "-m", "dramatiq", "example", "--processes", "2", "--threads", "2"],
            env=environment,
            cwd=tmp_path,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        reaper.tell("+", workers.pid)
        try:
            urls = [f"http://127.0.0.1:{server.server_port}/{count}" for count in (3, 5, 7)]
            for url in urls:
                subprocess.run([sys.executable, "example.py", url], env=environment, cwd=tmp_path, check=True)
            expected = {f"There are {url.rpartition('/')[2]} words at {url!r}." for url in urls}
            wait_for(lambda: expected <= set(log.read_text().splitlines()), "the three counts")
            # After SIGTERM they end by themselves.
            workers.send_signal(signal.SIGTERM)
            assert workers.wait(120) == 0, log.read_text()
        finally:
            if workers.poll() is None:
                end_group(workers)
            reaper.tell("-", workers.pid)
            server.shutdown()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a program with all its processes."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    reaper.tell("-", process.pid)
