"""``lmq-admin import kestrel``: every item once, also after interruptions."""

from __future__ import annotations

import asyncio
import shlex
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from lmqcluster_cli.admin.imports import import_kestrel
from lmqcluster_cli.admin.imports.kestrel_journal import Journal

from lmqcluster import AsyncClient

from .cluster import Cluster
from .kestrel_ports import Lines
from .programs import run, run_here
from .raw_http import call


class DiedError(Exception):
    """The importing program died."""


def add(body: bytes, expires_ms: int = 0) -> bytes:
    return b"\2" + struct.pack("<iqq", len(body) + 16, 1_000, expires_ms) + body


def items_of(cluster: Cluster, queue: str) -> list[bytes]:
    found = []
    with Lines(cluster[2]) as client:
        while True:
            client.send(b"get %b\r\n" % queue.encode())
            if (head := client.until(b"\r\n")) == b"END\r\n":
                return found
            found.append(client.read(int(head.split()[3])))
            client.expect(b"\r\nEND\r\n")


def test_the_commands_for_a_configuration_file_work(shared_cluster: Cluster, queue_name: str, tmp_path: Path) -> None:
    file = tmp_path / "production.scala"
    file.write_text(
        "new KestrelConfig { queues = List(\n"
        f'new QueueBuilder {{ name = "{queue_name}"; maxItems = 7; maxAge = 1.5.hours; expireToQueue = "}}" }},\n'
        f'new QueueBuilder {{ name = "-{queue_name}"; fanoutOnly = true }})\n'
        f'aliases = new AliasBuilder {{ name = "{queue_name} all"; destinationQueues = List("{queue_name}", "b") }}\n'
        "default.maxItems = 123 }"
    )
    printed = run("lmq-admin", "import", "kestrel-config", str(file))
    assert (printed.code, printed.err) == (0, "")
    before = call(shared_cluster[0].http, "GET", "/properties").body
    try:
        for line in printed.out.splitlines():
            program, *words = shlex.split(line)
            # Run without a terminal, as in a script.
            assert run_here("--node", shared_cluster[0].http, *words).code == 0, program
        assert call(shared_cluster[0].http, "GET", "/properties").json[0] == [".", {"max_items": 123}]
    finally:
        call(shared_cluster[0].http, "PUT", "/properties", before, {"Content-Type": "application/json"})
    machine = call(shared_cluster[0].http, "GET", f"/v1/queues/{queue_name}").json["own_properties"]
    assert machine == {"max_items": 7, "max_age": 5400, "expire_to_queue": "}"}
    assert call(shared_cluster[0].http, "GET", f"/v1/queues/-{queue_name}").json["own_properties"] == {
        "fanout_only": True
    }
    alias = call(shared_cluster[0].http, "GET", f"/v1/queues/{queue_name}%20all").json["own_properties"]
    assert alias == {"destination_queues": [queue_name, "b"]}


def test_queues_with_children_move_in_order(shared_cluster: Cluster, queue_name: str, tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    bodies = [b"%d\0\xff" % number for number in range(2_500)]
    parent = b"".join(map(add, bodies)) + add(b"expired", now_ms - 1) + add(b"expires", now_ms + 3_600_000)
    (tmp_path / queue_name).write_bytes(parent + b"\x09" + struct.pack("<i", 1))
    (tmp_path / f"{queue_name}+child.1").write_bytes(add(b"of the child") + b"\2torn")
    (tmp_path / "unwanted").write_bytes(add(b"x"))
    command = ("lmq-admin", "--node", shared_cluster[0].http, "import", "kestrel", str(tmp_path))
    for run_number in range(2):
        done = run(*command, queue_name, f"{queue_name}+child")
        assert done.code == 65
        assert f"{queue_name}+child.1: an incomplete operation at byte 33; 5 bytes were skipped" in done.err
        rows = [line.split("\t") for line in done.out.splitlines()[-2:]]
        assert [row[:2] for row in rows] == [[queue_name, "2502"], [f"{queue_name}+child", "1"]]
        assert [row[2] for row in rows] == (["0", "0"] if run_number == 0 else ["2502", "1"])
    assert items_of(shared_cluster, f"{queue_name}+child") == [b"of the child"]
    assert items_of(shared_cluster, queue_name) == [*bodies, b"expires"]
    # From now on the child gets copies; therefore it cannot be an import target.
    with Lines(shared_cluster[1]) as client:
        client.ask(b"set %b 0 0 3\r\nnew\r\n" % queue_name.encode(), b"STORED\r\n")
    assert items_of(shared_cluster, f"{queue_name}+child") == [b"new"]
    with (tmp_path / queue_name).open("ab") as file:
        file.write(add(b"more"))
    done = run(*command, queue_name)
    assert done.code == 65
    assert "unbind them first" in done.err
    assert run(*command, "no-such-queue").code == 66
    assert run(*command[:-1], str(tmp_path / "no-such-folder")).code == 65


def test_an_interrupted_import_continues_where_it_stopped(
    shared_cluster: Cluster, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"%d" % number for number in range(50)]
    (tmp_path / queue_name).write_bytes(b"".join(map(add, bodies)))
    monkeypatch.setattr(import_kestrel, "BATCH_ITEMS", 7)
    shown: list[tuple[int, int]] = []

    def read() -> import_kestrel._Import:
        return import_kestrel._Import(queue_name, Journal.read([tmp_path / queue_name]))

    async def attempt(one: import_kestrel._Import, batches: int) -> None:
        """Die after `batches` batches; the answer to the last one is lost."""
        async with AsyncClient(shared_cluster.rpc_addresses) as client:
            left = batches

            class Dying:
                async def push_marked(self, *arguments: Any, **options: Any) -> int | None:
                    nonlocal left
                    left -= 1
                    stored = await client.push_marked(*arguments, **options)
                    if not left:
                        raise DiedError
                    return stored

                def mark(self, *arguments: Any) -> Any:
                    return client.mark(*arguments)

            await import_kestrel._store(one, Dying(), lambda items, size: shown.append((items, size)), asyncio.Event())

    for batches in (1, 3, 2):
        one = read()
        with pytest.raises(DiedError):
            asyncio.run(attempt(one, batches))
    # The last answer was lost, so the program knows of the batch before; numbers below 10 have one digit.
    assert (one.stored, one.size_bytes(one.stored)) == (35, 10 + 25 * 2)
    shown.clear()
    one = read()
    asyncio.run(attempt(one, 1000))
    assert (one.before, one.stored) == (42, 50)
    # The earlier items are not part of this run's progress, but of the total.
    assert shown == [(0, 74), (7, 88), (1, 90)]
    assert items_of(shared_cluster, queue_name) == bodies
