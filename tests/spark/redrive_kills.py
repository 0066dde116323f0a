"""Kill ``lmq-pipeline dead-letters --redrive`` repeatedly: every selected message is sent once, all others stay.

python -m tests.spark.redrive_kills --messages 20000 --kills 4
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lmqcluster import Client
from tests.integration.cluster import Cluster, clean_environment


def fill(client: Client, count: int) -> None:
    """Put dead letters into a queue."""
    client.update_props("work", {"retry": 0, "dead_letter_queue": "dead"})
    for begin in range(0, count, 1000):
        client.push_many("work", [b"%08d" % number for number in range(begin, min(count, begin + 1000))])
    failed = 0
    while messages := client.pull_many("work", 1000, 0):
        failed += sum(message.nack() for message in messages)
    assert failed == count


def drained(client: Client, queue: str) -> list[bytes]:
    """Return all contents of a queue, in order."""
    found: list[bytes] = []
    while messages := client.pull_many(queue, 1000, 0):
        assert all(client.done_many(queue, [message.id for message in messages]))
        found += [message.content for message in messages]
    return found


def run(servers: str, until: Client | None, moved: int) -> bool:
    """Run the command; kill it after a number of sent messages. Return whether it ended before."""
    command = [
        sys.executable,
        "-m",
        "lmqcluster_cli.pipeline",
        "--master",
        "local[2]",
        "dead-letters",
        "dead",
        "--redrive",
    ]
    command += [
        "--servers",
        servers,
        "--where",
        "int(text) % 4 <> 0",
        "--set",
        "value = concat(text, '!')",
        "--to",
        "sent",
    ]
    process = subprocess.Popen(command, env=clean_environment(), start_new_session=True)
    try:
        while process.poll() is None:
            if until is not None and until.backlog(queue="sent").messages >= moved:
                return False
            time.sleep(0.02)
        assert process.returncode == 0
        return True
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> None:
    """Run the program; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="lmq-redrive-") as folder, Cluster(3, directory=Path(folder)) as cluster:
        servers = ",".join(cluster.rpc_addresses)
        with Client(servers) as client:
            fill(client, given.messages)
            wanted = given.messages * 3 // 4
            marks = sorted(chance.randrange(1, wanted) for _ in range(given.kills))
            kills = sum(not run(servers, client, mark) for mark in marks)
            assert run(servers, None, 0)
            sent, left = drained(client, "sent"), drained(client, "dead")
    numbers = range(given.messages)
    assert sorted(sent) == [b"%08d!" % number for number in numbers if number % 4], "lost or duplicated"
    assert left == [b"%08d" % number for number in numbers if not number % 4], "not in their positions"
    print(f"{len(sent)} sent once, {len(left)} in their positions, {kills} kills at {marks}")


if __name__ == "__main__":
    main()
