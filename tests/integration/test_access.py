"""Access control as clients see it: what tokens bound to queues reveal, and what happens to clients whose
token ends.
"""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.node.access.sqs_keys import secret_access_key, sqs_key

from . import programs
from .cluster import Cluster, _direct, wait_for
from .guarded_node import ADMIN, guarded_node
from .raw_rpc import Rpc

DEADLINE_S = 180.0


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the ports report no waits
        await asyncio.sleep(0.01)


def own_address() -> str | None:
    """Return an address of this machine other than loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: this only looks up the route.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return None if address.startswith("127.") else address


def test_without_tokens_only_this_machine_is_served(tmp_path: Path) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")

    async def main() -> None:
        async with guarded_node(tmp_path, host="0.0.0.0", admin=None) as guarded:
            assert (await guarded.ask("GET", "/v1/queues", None))[0] == 200
            assert (await guarded.ask("GET", "/livez", None, address))[0] == 200
            status, challenge, text = await guarded.ask("GET", "/v1/queues", None, address)
            assert (status, challenge) == (401, 'Bearer realm="lmqcluster"')
            assert "lmq-admin token create" in text
            here, elsewhere = await guarded.connect(), await guarded.connect(host=address)
            assert await here.call("ping") == (None, b"pong")
            error, _ = await elsewhere.call("push", "q", "x")
            assert error.startswith(b"unauthorized: no tokens have been made yet")
            token = await guarded.token("root", "admin")
            assert await elsewhere.call("auth", token) == (None, b"ok")
            assert await elsewhere.call("push", "q", "x") == (None, b"ok")
            assert (await guarded.ask("GET", "/v1/queues", token, address))[0] == 200
            assert await here.read_end() == b"", "clients without a token are refused"
            assert (await guarded.ask("GET", "/v1/queues", None))[0] == 401

    run(main)


def test_a_connection_belongs_to_one_principal(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            reader = await guarded.token("root", "admin")
            rpc = await guarded.connect(ADMIN)
            assert await rpc.call("auth", ADMIN) == (None, b"ok")
            assert (await rpc.call("auth", reader))[0].startswith(b"conflict")
            assert (await rpc.call("auth", "wrong"))[0].startswith(b"unauthorized")
            assert await rpc.call("ping") == (None, b"pong")

    run(main)


def test_deleting_a_token_ends_the_waits_of_its_holders(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            await guarded.token("root", "admin")
            worker = await guarded.token("worker", "write", "^jobs")
            rpc, waiting = await guarded.connect(worker), await guarded.connect(worker)
            assert await rpc.call("push", "jobs", "x") == (None, b"ok")
            pull = asyncio.ensure_future(waiting.call("pull", "jobs.empty"))
            held = asyncio.ensure_future(guarded.ask("GET", "/messages/jobs.empty", worker))
            await until(lambda: guarded.node.service.pulls.waiting() == 2)
            assert (await guarded.ask("DELETE", "/v1/tokens/worker", ADMIN))[0] == 204
            with pytest.raises(EOFError):
                await pull
            assert (await held)[0] == 204
            assert guarded.node.service.pulls.waiting() == 0
            assert await rpc.read_end() == b""
            assert (await guarded.ask("GET", "/messages/jobs?t=0", worker))[0] == 401
            assert (await guarded.ask("DELETE", "/v1/tokens/worker", ADMIN))[0] == 404

    run(main)


def test_sums_over_all_queues_of_kestrels_statistics_need_a_token_for_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            viewer, everywhere = await guarded.token("viewer", "read", "^mine"), await guarded.token("all", "read")
            admin = await guarded.connect(ADMIN)
            for name in ("mine", "theirs"):
                assert (await admin.call("push", name, "x"))[0] is None
            for token, is_shown in ((everywhere, True), (viewer, False)):
                stats = json.loads((await guarded.ask("GET", "/stats.json", token))[2])
                sums = (
                    {"items", "bytes"} & stats["gauges"].keys(),
                    {"total_items", "queue_creates"} & stats["counters"].keys(),
                )
                assert [bool(one) for one in sums] == [is_shown, is_shown]
                assert stats["gauges"]["q/mine/items"] == 1
                assert ("q/theirs/items" in stats["gauges"]) == is_shown
                text = (await guarded.ask("GET", "/stats.txt", token))[2]
                assert ("total_items: 2" in text) == is_shown

    run(main)


@pytest.mark.parametrize("protocol", ["http", "rpc"])
def test_dead_letters_go_back_only_where_the_token_may_write(tmp_path: Path, protocol: str) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            tenant = await guarded.token("tenant", "admin", "^mine")
            admin, rpc = await guarded.connect(ADMIN), await guarded.connect(tenant)

            async def bury(queue: str) -> None:
                for call in (
                    ("update_props", queue, {"retry": 0, "dead_letter_queue": "mine.dead"}),
                    ("push", queue, "x"),
                ):
                    assert await admin.call(*call) == (None, b"ok")
                message_id = (await admin.call("pull", queue, 5))[1][b"id"]
                assert (await admin.call("release", queue, message_id))[0] is None

            async def send_back() -> str:
                if protocol == "rpc":
                    error, result = await rpc.call("redrive", "mine.dead")
                    return f"sent {result}" if error is None else error.decode()
                status, _, text = await guarded.ask("POST", "/v1/queues/mine.dead/redrive", tenant, json={})
                return f"sent {json.loads(text)['redriven']}" if status == 200 else json.loads(text)["code"]

            async def sizes() -> list[tuple[str, int]]:
                queues = json.loads((await guarded.ask("GET", "/v1/queues", ADMIN))[2])["queues"]
                return [(queue["name"], queue["ready"]) for queue in queues]

            await bury("mine.jobs")
            assert await send_back() == "sent 1"
            assert await sizes() == [("mine.dead", 0), ("mine.jobs", 1)]
            await bury("theirs")
            assert (await send_back()).startswith("forbidden")
            assert await sizes() == [("mine.dead", 1), ("mine.jobs", 1), ("theirs", 0)]
            assert await admin.call("redrive", "mine.dead") == (None, 1)
            assert (await sizes())[-1] == ("theirs", 1)

    run(main)


def test_a_token_expires(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            token = await guarded.token("brief", "read", lifetime_s=1.0)
            rpc = await guarded.connect(token)
            assert await rpc.read_end() == b""
            status, _, text = await guarded.ask("GET", "/v1/access", token)
            assert status == 401
            assert "expired" in text
            _, _, listed = await guarded.ask("GET", "/v1/tokens", ADMIN)
            assert json.loads(listed)["tokens"][0]["expired"] is True

    run(main)


def test_a_token_for_the_sqs_port_has_a_key_that_is_shown_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            wanted = {"name": "shop", "role": "write", "sqs": True}
            status, _, text = await guarded.ask("POST", "/v1/tokens", ADMIN, json=wanted)
            made = json.loads(text)
            found = guarded.node.access.signer("shop")
            assert status == 200
            assert found is not None
            assert (found[0], found[1].name) == (made["secret_access_key"], "shop")
            assert made["secret_access_key"] == secret_access_key(sqs_key(made["token"].encode()))
            _, _, text = await guarded.ask("GET", "/v1/tokens", ADMIN)
            (shown,) = json.loads(text)["tokens"]
            assert shown["sqs"] is True
            assert made["secret_access_key"] not in text
            for refused in ({**wanted, "name": "a,b"}, {**wanted, "name": "caf\u00e9"}, {**wanted, "sqs": 1}):
                assert (await guarded.ask("POST", "/v1/tokens", ADMIN, json=refused))[0] == 400
            assert (await guarded.ask("DELETE", "/v1/tokens/shop", ADMIN))[0] == 204
            assert guarded.node.access.signer("shop") is None
            status, _, text = await guarded.ask("POST", "/v1/tokens", ADMIN, json={**wanted, "sqs": False})
            assert "secret_access_key" not in json.loads(text)

    run(main)


def test_lists_show_what_the_token_covers(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            viewer = await guarded.token("viewer", "read", "^mine")
            admin, rpc = await guarded.connect(ADMIN), await guarded.connect(viewer)
            options = {"pattern": False, "count": 1, "lease": 60}
            for name in ("mine.a", "mine.b", "theirs"):
                assert (await admin.call("push", name, "x"))[0] is None
                assert (await admin.call("reserve_batch", name, 1, name, options))[0] is None
            _, _, queues = await guarded.ask("GET", "/v1/queues", viewer)
            assert [queue["name"] for queue in json.loads(queues)["queues"]] == ["mine.a", "mine.b"]
            _, _, stats = await guarded.ask("GET", "/stats", viewer)
            assert list(json.loads(stats)["queues"]) == ["mine.a", "mine.b"]
            _, _, found = await guarded.ask("GET", "/v1/subscriptions", viewer)
            assert [one["name"] for one in json.loads(found)["subscriptions"]] == ["mine.a", "mine.b"]
            _, subscriptions = await rpc.call("subscriptions")
            assert [one[b"name"] for one in subscriptions] == [b"mine.a", b"mine.b"]

    run(main)


def test_patterns_are_for_tokens_of_all_queues_or_of_the_same_pattern(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            worker = await guarded.token("worker", "write", "^jobs")
            admin, rpc = await guarded.connect(ADMIN), await guarded.connect(worker)
            assert (await admin.call("push", "jobs.a", "x"))[0] is None
            assert await rpc.call("push_all", "^jobs", "y") == (None, b"ok")
            error, _ = await rpc.call("push_all", "^jobs[.]a", "y")
            assert error.startswith(b"forbidden: token 'worker'")
            assert (await rpc.call("pull_any", ".*", 0))[0].startswith(b"forbidden")
            assert (await rpc.call("pull_any", "^jobs", 0))[1][b"queue"] == b"jobs.a"
            assert (await guarded.ask("GET", "/messages?qre=%5Ejobs&t=0", worker))[0] == 200
            status, _, text = await guarded.ask("GET", "/messages?qre=.%2A&t=0", worker)
            assert (status, text.partition(":")[0]) == (403, "forbidden")

    run(main)


def test_a_batch_lease_is_bound_to_its_name_and_its_queues(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            worker = await guarded.token("worker", "write", "^jobs")
            admin, rpc = await guarded.connect(ADMIN), await guarded.connect(worker)
            one = {"pattern": False, "count": 1, "lease": 60}
            assert (await admin.call("push", "secrets", "x"))[0] is None
            assert (await rpc.call("push", "jobs", "x"))[0] is None
            for name, source, options in [
                ("other", "jobs", one),
                ("jobs-etl", "secrets", one),
                ("jobs-etl", ".*", {**one, "pattern": True}),
            ]:
                assert (await rpc.call("reserve_batch", name, 1, source, options))[0].startswith(b"forbidden"), name
            assert (await rpc.call("reserve_batch", "jobs-etl", 1, "jobs", one))[1][:2] == [b"live", 1]
            assert (await rpc.call("read_batch", "jobs-etl", 1, 0, 10))[1][b"queue"] == [[b"jobs", 1]]
            # Subscriptions of other principals under a matching name are not shown either.
            assert (await admin.call("reserve_batch", "jobs-mixed", 1, "secrets", one))[1][:2] == [b"live", 1]
            assert (await rpc.call("read_batch", "jobs-mixed", 1, 0, 10))[0].startswith(b"forbidden")
            # Every client with access to the queue may use random names, such as those of Spark, that cannot be
            # guessed.
            random = f"spark-{uuid.uuid4()}"
            assert (await rpc.call("reserve_batch", random, 1, "jobs", one))[0] is None
            assert (await rpc.call("reserve_batch", random, 2, "secrets", one))[0].startswith(b"forbidden")
            assert (await rpc.call("settle_batches", random, 1))[0] is None
            assert (await rpc.call("settle_batches", f"spark-{random[-8:]}", 1))[0].startswith(b"forbidden")
            assert (await rpc.call("backlog", "secrets", False))[0].startswith(b"forbidden")
            assert (await rpc.call("backlog", "jobs", False))[0] is None

    run(main)


def test_a_refused_push_uses_up_its_number(tmp_path: Path) -> None:
    """Check that client and node count a producer's pushes alike; otherwise pushes would be taken for duplicates."""

    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            rpc = await guarded.connect(await guarded.token("worker", "write", "^jobs"))
            assert (await rpc.call("producer", "a producer", 1))[0] is None
            calls: list[tuple[tuple[Any, ...], int]] = [
                (("push", "jobs", "x"), 1),
                (("push", "theirs", "x"), 1),
                (("push", "theirs", "x", {}), 1),
                (("push_many", "theirs", ["x", "y", "z"]), 3),
                (("push", "theirs", "x", {"key": "k"}), 0),
                (("push_many", "theirs", ["x"], {"keys": ["k"]}), 0),
                (("push_many", "jobs", ["x", "y"]), 2),
                (("push_each", "theirs", ["x", "y"]), 2),
                (("push_each", "jobs", ["x", "y"]), 2),
            ]
            expected = 1
            (connection,) = guarded.rpc._connections
            for call, count in calls:
                error, _ = await rpc.call(*call)
                assert (error is None) == (call[1] == "jobs")
                expected += count
                assert connection.next_sequence == expected, call

    run(main)


def test_a_stranger_cannot_fill_the_buffers(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            reader, writer = await asyncio.open_connection("127.0.0.1", guarded.rpc.port)
            # A push of 1 MiB that is never finished.
            writer.write(b"\x94\x00\x01\xa4push\x92\xa1q\xc6\x00\x10\x00\x00" + b"x" * 200_000)
            answer = await reader.read()
            assert b"unauthorized" in answer
            writer.close()
            await writer.wait_closed()

    run(main)


def request(address: str, method: str, path: str, token: str | None, body: Any = None) -> tuple[int, Any]:
    headers = {"content-type": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://{address}{path}", method=method, data=data, headers=headers)
    try:
        with _direct.open(asked, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read()


def test_tokens_are_the_clusters(secret_cluster: Cluster) -> None:
    """A token created through one node is valid at the others, at once and after a restart, and at nodes that
    join later.
    """
    cluster = secret_cluster
    first, second, third = cluster.nodes
    status, made = request(first.http, "POST", "/v1/tokens", None, {"name": "root", "role": "admin"})
    assert status == 200
    token = made["token"]
    for node in (second, third):
        wait_for(lambda: request(node.http, "GET", "/v1/queues", None)[0] == 401, "the rule is known")  # noqa: B023
        assert request(node.http, "GET", "/v1/access", token)[1]["name"] == "root"
    files = [path for node in cluster.nodes for path in node.data_dir.rglob("*") if path.is_file()]
    assert len(files) > len(cluster.nodes)
    assert not any(token.encode() in path.read_bytes() for path in files), "a secret is kept nowhere"
    third.restart()
    assert request(third.http, "GET", "/v1/queues", None)[0] == 401
    assert request(third.http, "GET", "/v1/queues", token)[0] == 200
    joiner = cluster.add_node()
    # The joining node has no token for its peer; lmq-admin has.
    refused = programs.run("lmq-admin", "--node", joiner.http, "join", first.http)
    assert "join by its Raft address" in refused.one_line_error()
    done = programs.run("lmq-admin", "--node", joiner.http, "join", first.http, environment={"LMQ_TOKEN": token})
    assert (done.code, done.err) == (0, "")
    assert request(joiner.http, "GET", "/v1/cluster", None)[0] == 401
    assert len(request(joiner.http, "GET", "/v1/cluster", token)[1]["nodes"]) == 4
    # A node that has left has neither data nor tokens; any local client may let it join again.
    assert request(joiner.http, "POST", "/v1/cluster/leave", token)[0] == 200
    status, seen = request(joiner.http, "GET", "/v1/cluster", None)
    assert status == 200, seen
    assert seen["nodes"][0]["state"] == "left"
    assert request(joiner.http, "GET", "/v1/queues", token)[0] == 503
    assert request(first.http, "DELETE", "/v1/tokens/root", token)[0] == 204
    assert request(first.http, "GET", "/v1/queues", None)[0] == 200


def test_a_restarted_node_refuses_clients_until_it_knows_the_log(secret_cluster: Cluster) -> None:
    """A node that restarts alone does not know the end of the log; until it does, it serves no client."""
    cluster = secret_cluster
    first, *others = cluster.nodes
    assert request(first.http, "POST", "/v1/tokens", None, {"name": "root", "role": "admin"})[0] == 200
    with Rpc(first.rpc) as rpc:
        assert rpc.error("ping").startswith(b"unauthorized")
    for node in cluster.nodes:
        node.kill()
    first.start(wait=False)
    status = wait_for(lambda: _status_of(first.http), "the first node answers")
    assert status in (401, 503)
    for node in others:
        node.start()
    wait_for(lambda: _status_of(first.http) == 401, "the first node knows the tokens")


def _status_of(address: str) -> int | None:
    try:
        return request(address, "GET", "/v1/cluster", None)[0]
    except OSError:
        return None
