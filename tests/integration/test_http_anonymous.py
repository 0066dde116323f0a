"""Clients that a node serves without a token: programs on its machine and its own console, not foreign pages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .cluster import NodeProcess
from .guarded_node import guarded_node
from .raw_http import Connection, call

CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
PAGE_TYPES = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
"""Content types that a page may send without a preflight request."""


def ask(address: str, head: str, body: bytes = b"") -> tuple[int, str]:
    """Send a request unchanged; return its status and the reason of a refusal."""
    with Connection(address) as connection:
        connection.send(head.encode("latin-1") + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = connection.read()
        return answer.status, answer.headers.get("x-lmq-error", b"").decode().partition(":")[0]


def count(node: NodeProcess, name: str) -> int:
    """Return the number of messages in a queue."""
    answer = call(node.http, "GET", f"/v1/queues/{name}")
    return 0 if answer.status == 404 else int(answer.json["size"])


FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:{port}",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1.evil.example:{port}",
    "evil.localhost",
    "localhost.",
    "127.0.0.1.",
    "127.0.0.1:{port}.evil.example",
    "127.0.0.1:{port}@evil.example",
    "user@127.0.0.1",
    "user:pass@127.0.0.1:{port}",
    "127.0.0.1:99999999",
    "127.0.0.1:evil",
    "127.0.0.1:{port}:80",
    "127.1",
    "0.0.0.0",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.0.0.01",
    "127.0.0.1 evil.example",
    "127.0.0.1,evil.example",
    "127.0.0.1/evil.example",
    "[::ffff:127.0.0.1]",
    "[::]",
    "[::1",
    "[::1]evil.example",
    "::1",
    "[fe80::1]",
    "10.0.0.1",
    "128.0.0.1",
    "ⓛocalhost",
    "",
]


@pytest.mark.parametrize("host", FOREIGN_HOSTS, ids=range(len(FOREIGN_HOSTS)))
def test_requests_for_other_hosts_are_refused(node: NodeProcess, queue_name: str, host: str) -> None:
    """A foreign name may resolve to this machine: the browser then takes the node for that site's server."""
    line = host.format(port=node.http.rpartition(":")[2]).encode().decode("latin-1")
    requests = {
        "POST": f"/messages/{queue_name}",
        "GET": f"/messages/{queue_name}?t=0",
        "DELETE": f"/queues/{queue_name}",
    }
    for method, target in requests.items():
        assert ask(node.http, f"{method} {target} HTTP/1.1\r\nHost: {line}\r\n") == (421, "unknown_host")
    assert count(node, queue_name) == 0


OWN_HOSTS = [
    "127.0.0.1",
    "127.0.0.1:{port}",
    "127.255.0.7:1",
    "localhost",
    "LocalHost:{port}",
    "localhost:",
    "[::1]",
    "[::1]:{port}",
    "[0:0::1]:1",
]


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_requests_for_this_machine_are_served(node: NodeProcess, queue_name: str, host: str) -> None:
    """The port does not matter: a tunnel may have changed it."""
    line = host.format(port=node.http.rpartition(":")[2])
    assert ask(node.http, f"POST /messages/{queue_name} HTTP/1.1\r\nHost: {line}\r\n", b"x")[0] == 200
    # The console's own changing requests name it as their origin.
    own = f"POST /messages/{queue_name} HTTP/1.1\r\nHost: {line}\r\nOrigin: http://{line}\r\nSec-Fetch-Site: same-origin\r\n"
    assert ask(node.http, own, b"x")[0] == 200


FOREIGN_ORIGINS = [
    "http://evil.example",
    "http://127.0.0.1:3000",
    "http://localhost:{port}",
    "http://127.0.0.1",
    "http://127.0.0.1:{port}.evil.example",
    "http://127.0.0.1:{port}@evil.example",
    "http://127.0.0.1:{port}/",
    "file://",
    "chrome-extension://127.0.0.1:{port}",
    "127.0.0.1:{port}",
    "null",
    "",
]


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_requests_of_foreign_pages_are_refused(node: NodeProcess, queue_name: str, origin: str) -> None:
    """This holds for every Sec-Fetch-Site and every declared body type."""
    line = origin.format(port=node.http.rpartition(":")[2])
    for site in ("", "Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n"):
        for content_type in PAGE_TYPES:
            head = f"POST /messages/{queue_name} HTTP/1.1\r\nHost: {node.http}\r\nOrigin: {line}\r\n{site}"
            assert ask(node.http, f"{head}Content-Type: {content_type}\r\n", b"x=y") == (403, "foreign_origin")
    assert count(node, queue_name) == 0


def test_sec_fetch_site_is_respected(node: NodeProcess, queue_name: str) -> None:
    def push(site: str) -> int:
        return call(node.http, "POST", f"/messages/{queue_name}", b"x", {"Sec-Fetch-Site": site}).status

    sites = ("cross-site", "same-site", "", "anything", "same-origin", "none")
    assert [push(site) for site in sites] == [403, 403, 403, 403, 200, 200]
    refused = call(node.http, "POST", "/v1/cluster/leave", headers={"Sec-Fetch-Site": "cross-site"})
    assert (refused.status, refused.json["code"]) == (403, "foreign_origin")


def test_reads_of_foreign_pages_are_refused(node: NodeProcess) -> None:
    paths = [
        "/stats",
        "/properties",
        "/v1/cluster",
        "/v1/overview",
        "/v1/queues",
        "/v1/tokens",
        "/metrics",
        "/openapi.json",
        "/none",
    ]
    for path in paths:
        assert ask(node.http, f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n")[0] == 421, path
        assert ask(node.http, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n")[0] == 403, (
            path
        )
    with Connection(node.http) as connection:
        connection.ask(
            "OPTIONS", "/messages/q", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "PUT"}
        )
        answer = connection.read()
    assert answer.status == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_routes_without_data_are_open(node: NodeProcess) -> None:
    """Probes of orchestrators use the node's address, whatever it is."""
    for path in ("/livez", "/readyz", "/console/"):
        assert (
            ask(node.http, f"GET {path} HTTP/1.1\r\nHost: 10.1.2.3:9980\r\nOrigin: http://evil.example\r\n")[0] == 200
        )


def test_the_absolute_form_of_a_target_names_a_host_too(node: NodeProcess, queue_name: str) -> None:
    target = f"/messages/{queue_name}"
    for authority in ("evil.example", "evil.example:80", "user@127.0.0.1", "127.0.0.1@evil.example", "127.0.0.1."):
        head = f"POST http://{authority}{target} HTTP/1.1\r\nHost: {node.http}\r\n"
        assert ask(node.http, head, b"x") == (421, "unknown_host"), authority
    assert ask(node.http, f"POST http://{node.http}{target} HTTP/1.1\r\nHost: evil.example\r\n", b"x")[0] == 421
    assert ask(node.http, f"POST http://{node.http}{target} HTTP/1.1\r\nHost: {node.http}\r\n", b"x")[0] == 200
    assert count(node, queue_name) == 1


def test_exactly_one_host_is_required(node: NodeProcess, queue_name: str) -> None:
    """Two are malformed. Version 1.0 allows requests without one, which browsers do not send."""
    target = f"/messages/{queue_name}"
    for first, second in (("localhost", "evil.example"), ("evil.example", "localhost"), ("localhost", "localhost")):
        assert ask(node.http, f"POST {target} HTTP/1.1\r\nHost: {first}\r\nHost: {second}\r\n", b"x")[0] == 400
    assert ask(node.http, f"POST {target} HTTP/1.1\r\n", b"x")[0] == 400
    assert ask(node.http, f"POST {target} HTTP/1.0\r\n", b"x")[0] == 200
    assert ask(node.http, f"POST {target} HTTP/1.0\r\nOrigin: http://evil.example\r\n", b"x")[0] == 403
    assert ask(node.http, f"POST {target} HTTP/1.0\r\nHost: evil.example\r\n", b"x")[0] == 421
    assert count(node, queue_name) == 1


def test_the_refusal_names_the_remedy(node: NodeProcess) -> None:
    with Connection(node.http) as connection:
        connection.send(b"GET /v1/cluster HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        problem = connection.read().json
    assert (problem["code"], problem["retryable"], problem["outcome"]) == ("unknown_host", False, "not_applied")
    assert "'evil.example'" in problem["detail"]
    assert "http_hosts" in problem["detail"]


def test_further_names_can_be_allowed(tmp_path: Path) -> None:
    """Browsers do not trust such names, and send no fetch metadata with a GET: there the console's header is
    required.
    """

    async def main() -> None:
        async with guarded_node(tmp_path, admin=None, http_hosts=("queue.internal", "[fd00::1]")) as guarded:
            url = f"http://127.0.0.1:{guarded.http.port}/v1/cluster"

            async def status(host: str, **headers: str) -> int:
                sent = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
                async with guarded.session.get(url, headers=sent) as answer:
                    return answer.status

            assert await status("queue.internal") == 200
            assert await status("Queue.Internal:9980") == 200
            assert await status("[fd00::1]:9980") == 200
            assert await status("other.internal") == 421
            assert await status("queue.internal", Origin="http://evil.example") == 403
            assert await status("queue.internal", Origin="https://queue.internal") == 200
            assert await status("queue.internal", User_Agent=CHROME) == 403
            assert await status("queue.internal", User_Agent=CHROME, X_Lmq_Console="1") == 200
            assert await status("queue.internal", User_Agent=CHROME, Sec_Fetch_Site="same-origin") == 200
            assert await status("localhost", User_Agent=CHROME) == 200

    asyncio.run(main())


def test_a_token_is_valid_under_every_name(tmp_path: Path) -> None:
    """A request with a token was sent by its owner: browsers add none by themselves."""

    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            url = f"http://127.0.0.1:{guarded.http.port}/v1/cluster"
            token = await guarded.token("reader", "read")
            for headers, status in [({}, 401), ({"Authorization": f"Bearer {token}"}, 200)]:
                async with guarded.session.get(url, headers={"Host": "queue.example", **headers}) as answer:
                    assert answer.status == status

    asyncio.run(main())
