"""Foreign pages, in a real browser on the node's machine: they store nothing and read nothing.

Each page is served under another origin: another port of this machine, another name, or, as after DNS rebinding, a
foreign name that resolves to the node's own address and port.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.integration.cluster import NodeProcess, ports
from tests.integration.kestrel_ports import PROTOCOLS, address_of
from tests.integration.raw_http import call

from .tools import chromium

FOREIGN_NAME = "evil.example"
SECRET = "the secret of the node"
BLANK = "<!doctype html><title>A foreign page</title><body></body>"

ATTACK = """
async ({target, queue}) => {
  const read = [];
  const attempt = async (method, path, options) => {
    try {
      const answer = await fetch(target + path, {method, ...options});
      read.push(answer.ok ? await answer.text() : "");
    } catch (error) { /* The browser refused to show the answer. */ }
  };
  for (const mode of ["no-cors", "cors"]) {
    await attempt("GET", `/messages/${queue}?t=0`, {mode});
    await attempt("GET", "/v1/queues", {mode});
    await attempt("POST", `/messages/${queue}`, {mode, body: "stored by a page"});
    await attempt("POST", `/messages/${queue}`, {mode, body: new URLSearchParams({a: "stored by a page"})});
    await attempt("POST", `/v1/queues/${queue}/messages`, {mode, body: '{"messages": [{"content": "stored by a page"}]}'});
    await attempt("POST", "/v1/tokens", {mode, body: '{"name": "taken over", "role": "admin"}'});
  }
  await attempt("DELETE", `/queues/${queue}`, {mode: "cors"});
  await attempt("PUT", `/properties/${queue}`, {mode: "cors", body: '{"retry": 0}'});
  for (const tag of ["img", "script", "iframe"]) {
    const element = document.createElement(tag);
    await new Promise((ended) => {
      element.onload = element.onerror = ended;
      element.src = `${target}/messages/${queue}?t=0`;
      document.body.append(element);
    });
  }
  return read;
}
"""

SUBMIT = """
({target, queue, type}) => {
  const form = document.createElement("form");
  Object.assign(form, {method: "post", action: `${target}/messages/${queue}`, enctype: type});
  const field = Object.assign(document.createElement("input"), {name: "body", value: "stored by a form"});
  form.append(field);
  document.body.append(form);
  form.submit();
}
"""


class _ForeignPages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(BLANK.encode())

    def log_message(self, *_: object) -> None:
        """Discard the log message."""


@pytest.fixture(scope="module")
def foreign_server() -> Iterator[int]:
    """The port of a web server that is not the node's."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _ForeignPages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node without tokens."""
    arguments = [word for name in PROTOCOLS for word in (f"--{name}", f"127.0.0.1:{ports.take()}")]
    with NodeProcess(tmp_path_factory.mktemp("node"), arguments=arguments) as process:
        yield process


@pytest.fixture(scope="module")
def misled_browser() -> Iterator[Browser]:
    """A Chromium for which every name resolves to this machine."""
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--host-resolver-rules=MAP * 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(misled_browser: Browser) -> Iterator[Page]:
    """A tab in a new browser profile."""
    with misled_browser.new_context() as context:
        yield context.new_page()


def other_port(page: Page, node: NodeProcess, foreign_server: int) -> str:
    """Open a page on another port of this machine; return the address at which it attacks the node."""
    page.goto(f"http://127.0.0.1:{foreign_server}/")
    return f"http://{node.http}"


def other_name(page: Page, node: NodeProcess, foreign_server: int) -> str:
    """Open a page under another name."""
    page.goto(f"http://{FOREIGN_NAME}:{foreign_server}/")
    return f"http://{node.http}"


def rebound(page: Page, node: NodeProcess, foreign_server: int) -> str:
    """Open a page whose name and port now lead to the node: the browser takes the node for its own server."""
    origin = f"http://{FOREIGN_NAME}:{node.http.rpartition(':')[2]}"

    def serve(route: Route) -> None:
        route.fulfill(content_type="text/html", body=BLANK)

    page.route(f"{origin}/", serve)
    page.goto(f"{origin}/")
    return origin


def contents(node: NodeProcess, queue: str) -> list[str]:
    """Return the contents of a queue."""
    answer = call(node.http, "GET", f"/v1/queues/{queue}/messages?max=100")
    return [str(message["content"]) for message in answer.json["messages"]]


@pytest.mark.parametrize("visit", [other_port, other_name, rebound])
def test_a_foreign_page_stores_and_reads_nothing(
    page: Page, node: NodeProcess, foreign_server: int, visit: Callable[[Page, NodeProcess, int], str]
) -> None:
    queue = f"guarded-{visit.__name__}"
    call(node.http, "POST", f"/messages/{queue}", SECRET.encode(), {"Content-Type": "text/plain"})
    target = visit(page, node, foreign_server)

    read = page.evaluate(ATTACK, {"target": target, "queue": queue})

    assert [text for text in read if text] == []
    assert contents(node, queue) == [SECRET]
    assert call(node.http, "GET", "/v1/tokens").json["tokens"] == []


@pytest.mark.parametrize("type_", ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"])
@pytest.mark.parametrize("visit", [other_port, other_name, rebound])
def test_a_foreign_form_stores_nothing(
    page: Page, node: NodeProcess, foreign_server: int, visit: Callable[[Page, NodeProcess, int], str], type_: str
) -> None:
    queue = f"forms-{visit.__name__}"
    call(node.http, "POST", f"/messages/{queue}", SECRET.encode(), {"Content-Type": "text/plain"})
    target = visit(page, node, foreign_server)

    with page.expect_response(lambda answer: answer.url == f"{target}/messages/{queue}") as answered:
        page.evaluate(SUBMIT, {"target": target, "queue": queue, "type": type_})

    assert answered.value.status in {403, 421}
    assert set(contents(node, queue)) == {SECRET}


SEND = """
async ({target, body}) => {
  const form = document.createElement("form");
  Object.assign(form, {method: "post", action: target, enctype: "text/plain", target: "shown"});
  form.append(Object.assign(document.createElement("input"), {name: "a", value: body}));
  const frame = Object.assign(document.createElement("iframe"), {name: "shown"});
  const ended = new Promise((end) => { frame.onload = end; });
  document.body.append(frame, form);
  form.submit();
  await ended;
  for (const mode of ["no-cors", "cors"]) await fetch(target, {method: "POST", mode, body}).catch(() => {});
  for (const method of ["PUT", "flush", "status"]) await fetch(target, {method, body}).catch(() => {});
}
"""
STOLEN = (
    "\nput web:\nx\n\nget kept\nconfirm kept 1\nflush kept\nstatus readonly\n\r\nset web 0 0 1\r\nx\r\nflush kept\r\n"
)


@pytest.mark.parametrize("is_rebound", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_page_uses_no_port_of_kestrel(
    page: Page, node: NodeProcess, foreign_server: int, protocol: str, is_rebound: bool
) -> None:
    call(node.http, "POST", "/messages/kept", SECRET.encode(), {"Content-Type": "text/plain"})
    host, port = address_of(node, protocol)
    target = f"http://{FOREIGN_NAME if is_rebound else host}:{port}/"
    if is_rebound:
        page.route(target, lambda route: route.fulfill(content_type="text/html", body=BLANK), times=1)
        page.goto(target)
    else:
        other_name(page, node, foreign_server)

    page.evaluate(SEND, {"target": target, "body": STOLEN})

    assert set(contents(node, "kept")) == {SECRET}
    assert "web" not in [queue["name"] for queue in node.get_json("/v1/queues")["queues"]]
    assert call(node.http, "POST", "/messages/kept", SECRET.encode(), {"Content-Type": "text/plain"}).status == 200


def test_the_page_of_the_node_is_served(page: Page, node: NodeProcess) -> None:
    """The same requests from a page of the node are served, so the tests above can fail."""
    page.goto(f"http://{node.http}/console/")
    stored = page.evaluate(
        "async (body) => (await fetch('/messages/own', {method: 'POST', body})).status", json.dumps("own")
    )
    assert stored == 200
    assert contents(node, "own") == [json.dumps("own")]
