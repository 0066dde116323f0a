"""``/v1/overview``, a queue's statistics, and the files of the console."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import pytest

from .cluster import Cluster, NodeProcess, wait_for
from .raw_http import Connection, call
from .raw_rpc import Rpc
from .test_http_v1 import Api

STATIC = files("lmqcluster.console").joinpath("static")


def test_overview_sums_all_queues_and_lists_all_nodes(shared_cluster: Cluster, queue_name: str) -> None:
    api = Api(shared_cluster[0].http)
    before = api.ok("GET", "/v1/overview")["totals"]
    messages = [{"content": "x" * 10}] * 30
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": messages})
    pulled = api.ok("POST", f"/v1/queues/{queue_name}/pull", {"max": 4})["messages"]
    api.ok("POST", f"/v1/queues/{queue_name}/ack", {"ids": [pulled[0]["id"]]})

    def grown(field: str) -> int:
        return int(api.ok("GET", "/v1/overview")["totals"][field] - before[field])

    # The sums may be half a second old.
    wait_for(lambda: grown("acked_total") == 1, "the sums")
    figures = {"queues": 1, "ready": 26, "leased": 3, "bytes": 290, "pushed_total": 30, "pulled_total": 4}
    assert {field: grown(field) for field in figures} == figures

    def nodes() -> list[dict[str, object]]:
        members = api.ok("GET", "/v1/overview")["cluster"]["nodes"]
        return members if all(member["vitals"] for member in members) else []

    members = wait_for(nodes, "figures of all nodes")
    assert sorted(str(member["name"]) for member in members) == ["n1", "n2", "n3"]
    for member in members:
        assert isinstance(member["vitals"], dict)
        assert member["vitals"]["stored_bytes_max"] > 0
        assert member["vitals"]["disk_free_bytes"] > 0
        assert 0 <= member["vitals"]["kept_bytes"] < member["vitals"]["kept_bytes_max"]


def test_overview_has_a_history_on_request(node: NodeProcess) -> None:
    api = Api(node.http)
    assert "history" not in api.ok("GET", "/v1/overview")
    history = api.ok("GET", "/v1/overview?history")["history"]
    assert history
    assert [sums["at_s"] for sums in history] == sorted(sums["at_s"] for sums in history)


def test_queue_stats(node: NodeProcess, queue_name: str) -> None:
    api = Api(node.http)
    api.problem(api("GET", f"/v1/queues/{queue_name}/stats"), 404, "queue_not_found")
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "x"}] * 7})
    for _ in range(6):
        api.ok("POST", f"/v1/queues/{queue_name}/pull")
    stats = api.ok("GET", f"/v1/queues/{queue_name}/stats")
    assert (stats["push"]["count"], stats["pull"]["count"]) == (7, 6)
    assert stats["retention"]["n"] == 6


def test_console_needs_its_last_slash(node: NodeProcess) -> None:
    answer = call(node.http, "GET", "/console")
    assert (answer.status, answer["location"]) == (308, b"console/")
    page = call(node.http, "GET", "/console/?x=1")
    assert (page.status, page["content-type"]) == (200, b"text/html; charset=utf-8")


@pytest.mark.parametrize("name", sorted(file.name for file in STATIC.iterdir()))
def test_console_files_load_nothing_external(node: NodeProcess, name: str) -> None:
    answer = call(node.http, "GET", f"/console/{name}")
    assert (answer.status, answer.body) == (200, STATIC.joinpath(name).read_bytes())
    policy = answer["content-security-policy"].decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = answer.body.decode()
    addresses = set(re.findall(r"https?://[^\s\"'`]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not addresses
    for imported in re.findall(r'from "\./([^"]+)"', text):
        assert STATIC.joinpath(imported).is_file(), f"{name} imports {imported}"


def test_page_preloads_all_modules(node: NodeProcess) -> None:
    page = call(node.http, "GET", "/console/").body.decode()
    named = re.findall(r'(?:modulepreload" href|module" src)="([^"]+)"', page)
    assert sorted(named) == sorted(file.name for file in STATIC.iterdir() if file.name.endswith(".js"))


def test_console_files_are_not_sent_twice(node: NodeProcess) -> None:
    with Connection(node.http) as connection:
        first = connection.call("GET", "/console/console.css")
        again = connection.call("GET", "/console/console.css", headers={"If-None-Match": first["etag"].decode()})
        assert (again.status, again.body) == (304, b"")
        head = connection.call("HEAD", "/console/console.css")
        assert (head.status, head["content-length"]) == (200, b"%d" % len(first.body))
        assert connection.call("GET", "/console/..%2Fassets.py").status == 404
        assert connection.call("POST", "/console/").status == 405


def test_waiting_pulls_and_connections_are_listed(node: NodeProcess, queue_name: str) -> None:
    api = Api(node.http)
    with ThreadPoolExecutor(1) as thread:
        pull = thread.submit(call, node.http, "GET", f"/messages/{queue_name}?t=600")

        def pulls() -> int:
            rows = api.ok("GET", "/v1/consumers?limit=1000")["consumers"]
            return sum(row["pulls"] for row in rows if row.get("queue") == queue_name)

        wait_for(pulls, "the pull to wait")
        assert pulls() == 1
        first = api.ok("GET", "/v1/connections?limit=1")
        assert first["total"] >= 2
        assert len(first["connections"]) == 1
        rest = api.ok("GET", "/v1/connections?offset=1&limit=1000")["connections"]
        assert len({row["address"] for row in [*first["connections"], *rest]}) == len(rest) + 1
        assert {row["user"] for row in rest} <= {"", "local"}
        api.problem(api("GET", "/v1/connections?limit=1001"), 400, "bad_request")
        api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "x"}]})
        assert pull.result().status == 200
    assert pulls() == 0


def test_holders_of_messages_are_listed(node: NodeProcess, queue_name: str) -> None:
    api = Api(node.http)
    path = f"/v1/leases?queue={queue_name}"
    assert api.ok("GET", path) == {"leases": [], "total": 0, "complete": True}
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "x"}] * 8})

    def held() -> list[tuple[str, int, bool]]:
        rows = api.ok("GET", path)["leases"]
        assert {row["queue"] for row in rows} <= {queue_name}
        assert all(0 < row["ends_in_s"] <= 30 for row in rows)
        return [(row["port"], row["leased"], row["connected"]) for row in rows]

    with Rpc(node.rpc) as rpc:
        first = rpc.call("pull", queue_name, 0)
        rpc.call("pull_many", queue_name, 2)
        rpc.call("pull", queue_name, 0, {"auto_ack": True})
        rpc.call("pull_any", f"^{queue_name}$", 0)
        assert held() == [("msgpack_rpc", 4, True)]
        rpc.call("done", queue_name, first[b"id"])
        assert held() == [("msgpack_rpc", 3, True)]
    wait_for(lambda: held() == [("msgpack_rpc", 3, False)], "the node to notice the closed client")
    # Each of these uses a separate connection.
    assert call(node.http, "GET", f"/messages/{queue_name}?t=0").status == 200
    assert call(node.http, "GET", f"/messages?qre=^{queue_name}$&t=0").status == 200
    assert len(api.ok("POST", f"/v1/queues/{queue_name}/pull", {"auto_ack": True})["messages"]) == 1
    wait_for(lambda: held() == [("msgpack_rpc", 3, False)] + 2 * [("http", 1, False)], "all three")
    first_row = api.ok("GET", f"{path}&limit=1")
    assert (len(first_row["leases"]), first_row["total"], first_row["leases"][0]["leased"]) == (1, 3, 3)
    api.problem(api("GET", "/v1/leases?limit=0"), 400, "bad_request")


def test_a_lease_of_a_session_ends_with_it(node: NodeProcess, queue_name: str) -> None:
    api = Api(node.http)
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "x"}]})
    session = api.ok("POST", "/v1/sessions", {"ttl": 60})["session"]
    api.ok("POST", f"/v1/queues/{queue_name}/pull", {"session": session})
    (row,) = api.ok("GET", f"/v1/leases?queue={queue_name}")["leases"]
    assert (row["leased"], row["ends_in_s"]) == (1, None)


def test_a_queue_has_a_history(node: NodeProcess, queue_name: str) -> None:
    api = Api(node.http)
    api.problem(api("GET", f"/v1/queues/{queue_name}/history"), 404, "queue_not_found")
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "x"}] * 7})

    def known() -> list[dict[str, float]]:
        answer = api.ok("GET", f"/v1/queues/{queue_name}/history")
        assert answer["kept"] == bool(answer["history"])
        assert all(sample["at_s"] <= answer["uptime_s"] for sample in answer["history"])
        return list(answer["history"])

    first = wait_for(known, "a sample")[0]
    assert (first["ready"], first["pushed_total"], first["pulled_total"]) == (7, 7, 0)
