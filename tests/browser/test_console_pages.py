"""Every page in light and dark, by keyboard and on a phone; the list of queues with ten thousand of them."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Locator, Route, expect

from lmqcluster import AsyncClient, Client
from lmqcluster.wire.attributes import Attributes
from tests.integration.cluster import Cluster, NodeProcess, wait_for
from tests.integration.raw_http import call

from .conftest import OpenConsole
from .console import DEADLINE_MS, MENU, PAGES, Console, understood

QUEUES = 10_000
BUSY = "jobs"
SAMPLES = 359
"""One hour at ten-second intervals, without the last sample."""


@pytest.fixture(scope="module", autouse=True)
def queues(cluster: Cluster, client: Client) -> None:
    """Ten thousand queues with a message each, some with more."""

    async def push_all() -> None:
        async with AsyncClient(",".join(cluster.rpc_addresses)) as pushing:
            names = [f"queue-{number:05}" for number in range(QUEUES - 5)]
            await asyncio.gather(*(pushing.push(name, b"x") for name in names))

    # Playwright's event loop is running in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(push_all())).result()
    client.push_many("queue-00007", [b"more"] * 70)
    client.push_many("queue-01234", [b"more"] * 20)
    client.push_many(BUSY, [b"pay invoice %d" % number for number in range(30)])
    client.push("load", b"x")
    client.push_many("exported", [b"x"] * 5)
    client.reserve_batch("nightly", 1, queue="exported", count=5)
    client.lock("nightly", client.open_session(3600))
    client.push("json", b'{"order": 17, "paid": false}')
    call(cluster[1].http, "POST", "/messages/binary", bytes(range(256)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_works_and_is_readable(open_console: OpenConsole, axe: str, scheme: str) -> None:
    console = open_console(color_scheme=scheme)
    for route, heading in {**PAGES, f"queue/{BUSY}": BUSY}.items():
        console.open(route)
        expect(console.main.get_by_role("heading", level=1)).to_contain_text(heading)
        _wait_for_figures(console, route)
        assert console.violations(axe) == [], f"{route} in {scheme}"
    assert console.errors == []


def _wait_for_figures(console: Console, route: str) -> None:
    """Wait until the page shows figures of the node."""
    if route == "overview":
        expect(console.tile("queues")).to_have_text("10,000")
        expect(console.row("Queues with the most messages", "queue-00007")).to_contain_text("71")
        expect(console.row("Nodes", "n3")).to_contain_text("GiB")
    elif route in {"nodes", "cluster"}:
        places = {
            "nodes": console.main.get_by_role("status"),
            "cluster": console.main.get_by_role("region", name="Members"),
        }
        expect(places[route].get_by_text("leader", exact=True)).to_have_count(1)
        expect(places[route].get_by_text("follower", exact=True)).to_have_count(2)
    elif route == "queues":
        expect(console.main).to_contain_text("1 to 50 of 10,000 queues.")
    elif route == "clients":
        expect(console.row("Queues with leases", "exported").locator("td").first).to_have_text("5")
        expect(console.main.get_by_role("region", name="Connections")).to_contain_text("MessagePack-RPC")
    elif route == "sessions":
        expect(console.row("Locks", "nightly").locator("td").nth(2)).to_have_text("0")
        expect(console.main.get_by_role("region", name="Sessions").locator("tbody tr")).to_have_count(1)
    elif route == "schedules":
        expect(console.main).to_contain_text("There are no schedules.")
    elif route == "dead_letters":
        expect(console.main).to_contain_text("There are no dead letters.")
    elif route == "subscriptions":
        expect(console.main.get_by_role("region", name="Subscriptions")).to_contain_text("nightly")
    elif route == "tokens":
        expect(console.main).to_contain_text("There are no tokens")
    elif route == "defaults":
        expect(console.main).to_contain_text("There are no rules")
    else:
        expect(console.tile("ready")).to_have_text("30")
        expect(console.main.locator("td.preview").first).to_have_text("pay invoice 0")


def test_figures_move_under_load(open_console: OpenConsole, client: Client) -> None:
    console = open_console("overview")
    line = console.main.get_by_role("img", name="Messages a second").locator("path").first
    before = line.get_attribute("d")
    for _ in range(150):
        client.push_many("load", [b"x"] * 20)
        for message in client.pull_many("load", 20):
            message.ack()
        if line.get_attribute("d") != before and re.fullmatch(r"[1-9][\d,.]*", console.tile("pushed").inner_text()):
            break
        console.page.wait_for_timeout(200)
    else:
        pytest.fail("pushes do not show in the rates")
    assert console.errors == []


@pytest.mark.parametrize("route", ["overview", f"queue/{BUSY}"])
def test_plots_are_full_when_they_are_opened(open_console: OpenConsole, cluster: Cluster, route: str) -> None:
    _wait_for_history(cluster[0], 4)
    console = open_console(route)
    _wait_for_figures(console, route)
    line = console.main.get_by_role("img", name="Messages waiting").locator("path").first
    # The page itself has seen only one or two points.
    expect(line).to_have_attribute("d", re.compile("M[^L]*L[^L]*L[^L]*L"), timeout=5_000)
    console.main.get_by_label("Plots show at most").select_option("10 minutes")
    console.page.reload()
    expect(console.main.get_by_label("Plots show at most")).to_have_value("600")
    assert console.errors == []


@pytest.mark.parametrize("route", ["overview", f"queue/{BUSY}"])
def test_no_plot_is_empty_on_opening_after_an_hour_of_load(
    open_console: OpenConsole, cluster: Cluster, route: str
) -> None:
    _wait_for_history(cluster[0], 1)

    def with_an_hour(request: Route) -> None:
        answer = request.fetch()
        found = answer.json()
        found["history"] = _hour(found["history"][-1])
        request.fulfill(response=answer, json=found)

    console = open_console("tokens")
    # The history of a node with an hour of uptime; everything else is the node's own.
    console.page.route(re.compile(r"/v1/overview\?history$|/v1/queues/[^/]+/history$"), with_an_hour)
    console.page.goto(f"{console.page.url.partition('#')[0]}#/{route}")
    console.page.reload()
    for name in ("Messages a second", "Messages waiting"):
        plot = console.main.get_by_role("img", name=name)
        expect(plot).to_contain_text("60 min ago")
        line = plot.locator("path").first.get_attribute("d") or ""
        assert line.count("M") == 1, "the line has no gap"
        assert line.count("L") >= SAMPLES - 5
    assert console.errors == []


def test_a_burst_does_not_flatten_the_plots(open_console: OpenConsole, cluster: Cluster) -> None:
    _wait_for_history(cluster[0], 1)

    def with_a_burst(request: Route) -> None:
        answer = request.fetch()
        found = answer.json()
        hour = _hour(found["history"][-1])
        for sample in hour[100:102]:
            sample["ready"] += 44_000_000
        request.fulfill(response=answer, json={**found, "history": hour})

    console = open_console("tokens")
    console.page.route(re.compile(r"/v1/overview\?history$"), with_a_burst)
    console.page.goto(f"{console.page.url.partition('#')[0]}#/overview")
    console.page.reload()
    plot = console.main.get_by_role("img", name="Messages waiting")
    expect(plot).to_contain_text("cut off; up to 44M")
    expect(plot.get_by_text("15k", exact=True)).to_be_visible()
    expect(console.main.get_by_role("img", name="Messages a second")).not_to_contain_text("cut off")
    assert console.errors == []


@pytest.mark.parametrize(("route", "late"), [("overview", "/v1/overview"), (f"queue/{BUSY}", f"/v1/queues/{BUSY}")])
def test_no_plot_is_shown_before_there_is_something_to_plot(open_console: OpenConsole, route: str, late: str) -> None:
    console = open_console("tokens")
    held: list[Route] = []
    holds = True

    def hold(request: Route) -> None:
        if holds:
            held.append(request)
        else:
            request.continue_()

    console.page.route(re.compile(f"{late}([?/].*)?$"), hold)
    with console.page.expect_request(re.compile(late)):
        console.page.goto(f"{console.page.url.partition('#')[0]}#/{route}")
        console.page.reload()
    expect(console.main.get_by_role("heading", level=1)).to_be_visible()
    plots = console.main.get_by_role("img", name="Messages")
    expect(plots).to_have_count(0)
    holds = False
    for request in held:
        request.continue_()
    expect(plots).to_have_count(2)
    for place in range(2):
        expect(plots.nth(place).locator("path").first).to_have_attribute("d", re.compile("M"))
    assert console.errors == []


def _wait_for_history(node: NodeProcess, least: int) -> None:
    """Wait until the node has `least` samples of the busiest queue; it takes one every ten seconds."""

    def remembered() -> bool:
        return len(json.loads(call(node.http, "GET", f"/v1/queues/{BUSY}/history").body)["history"]) >= least

    wait_for(remembered, f"{least} samples", timeout_s=DEADLINE_MS / 1000)


def _hour(last: dict[str, float]) -> list[dict[str, float]]:
    """Return samples of the hour before the last one, with steadily growing counters."""
    rows = []
    for ago in range(SAMPLES, 0, -1):
        grown = {key: last[key] - 70 * ago if key.endswith("_total") else last[key] for key in last}
        rows.append({**grown, "at_s": last["at_s"] - 10 * ago})
    return [*rows, last]


def test_a_missing_queue_offers_only_a_push(open_console: OpenConsole) -> None:
    console = open_console("queue/nowhere")
    expect(console.main).to_contain_text("There is no queue nowhere now.")
    # It is requested every ten seconds, not every second.
    asked: list[str] = []
    console.page.on("request", lambda request: asked.append(request.url))
    for _ in range(3):
        with console.page.expect_request(re.compile("/v1/overview")):
            pass
    assert sum("/v1/queues/nowhere" in url for url in asked) <= 1
    expect(console.main.locator(".actions button:visible")).to_have_text(["Push"])


def test_list_is_searched_sorted_and_paged_by_the_node(open_console: OpenConsole) -> None:
    console = open_console("queues")
    summary = console.main.locator("p[aria-live=polite]")
    expect(summary).to_have_text("1 to 50 of 10,000 queues.")
    console.press("Next page")
    expect(summary).to_have_text("51 to 100 of 10,000 queues.")
    console.press("Next")
    expect(summary).to_have_text("101 to 150 of 10,000 queues.")
    console.press("Pushed/s")
    sorted_by = console.main.locator("th[aria-sort]")
    expect(sorted_by).to_have_text(re.compile("Pushed/s"))
    assert "--sort=-push_rate" in console.main.locator(".command code").inner_text()
    assert "\N{EN DASH}" not in console.column("Queues", 8), "the node provides the rates, so they are shown at once"
    console.press("Ready")
    expect(sorted_by).to_have_text(re.compile("Ready"))
    expect(summary).to_have_text("1 to 50 of 10,000 queues.")
    assert understood(console.main.locator(".command code").inner_text()) == ["queue", "ls"]
    assert console.column("Queues", 0)[:3] == ["queue-00007", BUSY, "queue-01234"]
    assert console.column("Queues", 1)[:4] == ["71", "30", "21", "1"]
    console.page.keyboard.press("/")
    console.page.keyboard.type("UE-012")
    expect(summary).to_have_text('1 to 50 of 100 queues with "UE-012" in their name.')
    assert console.column("Queues", 0)[0] == "queue-01234"
    assert "name=UE-012" in console.page.url
    console.page.reload()
    expect(summary).to_have_text('1 to 50 of 100 queues with "UE-012" in their name.')
    console.main.get_by_label("Rows").select_option("100")
    expect(summary).to_have_text('1 to 100 of 100 queues with "UE-012" in their name.')
    console.main.get_by_label("Show").select_option("leased")
    expect(summary).to_have_text('No queues with leased messages with "UE-012" in their name.')
    console.main.get_by_label("Search").fill("exp")
    expect(summary).to_have_text('1 to 1 of 1 queues with leased messages with "exp" in their name.')
    assert "--state leased" in console.main.locator(".command code").inner_text()
    console.main.get_by_label("Show").select_option("all")
    console.main.get_by_label("Search").fill("no such queue")
    expect(summary).to_have_text('No queues with "no such queue" in their name.')
    assert console.errors == []


def test_columns_are_chosen_and_remembered(open_console: OpenConsole) -> None:
    console = open_console("queues?name=queue-00007")
    table = console.main.get_by_role("region", name="Queues", exact=True)
    ready, leased = (table.get_by_role("columnheader", name=name, exact=True) for name in ("Ready", "Leased"))
    expect(ready).to_be_visible()
    console.main.get_by_text("Columns", exact=True).click()
    console.main.get_by_label("Ready", exact=True).uncheck()
    expect(ready).to_be_hidden()
    expect(leased).to_be_visible()
    expect(console.row("Queues", "queue-00007").locator("td").first).to_be_hidden()
    console.page.keyboard.press("Escape")
    expect(console.main.get_by_label("Leased", exact=True)).to_be_hidden()
    console.page.reload()
    expect(leased).to_be_visible()
    expect(ready).to_be_hidden()
    assert console.errors == []


def test_all_matching_queues_are_exported(open_console: OpenConsole) -> None:
    console = open_console("queues?name=queue-0")
    expect(console.main).to_contain_text("of 9,995 queues")
    with console.page.expect_download() as download:
        console.press("Export")
    with download.value.path().open(encoding="utf-8", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert len(rows) == QUEUES - 5
    assert rows["queue-00007"]["ready"] == "71"
    console.open(f"queue/{BUSY}")
    expect(console.tile("ready")).to_have_text("30")
    with console.page.expect_download() as download:
        console.press("Export")
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    assert len(lines) == 30
    assert json.loads(lines[0])["sequence"] < json.loads(lines[1])["sequence"]
    assert console.errors == []


def test_messages_are_shown_as_text_json_and_bytes(open_console: OpenConsole) -> None:
    console = open_console("queue/json")
    console.main.get_by_role("region", name="Messages").get_by_role("button").click()
    content = console.main.locator("pre[aria-label=Content]")
    expect(content).to_have_text('{\n  "order": 17,\n  "paid": false\n}')
    console.press("Text")
    expect(content).to_have_text('{"order": 17, "paid": false}')
    console.press("Hex")
    expect(content).to_contain_text("00000000  bc 7b 22 6f 72 64 65 72")
    expect(console.main).to_contain_text("Stored as MessagePack")
    console.open("queue/binary")
    console.main.get_by_role("region", name="Messages").get_by_role("button").click()
    expect(console.main.locator("pre[aria-label=Content]")).to_contain_text("000000f0  f0 f1 f2 f3")
    expect(console.main.get_by_role("button", name="Text", exact=True)).to_be_disabled()
    assert console.errors == []


def test_attributes_are_shown_and_select_messages(open_console: OpenConsole, client: Client, axe: str) -> None:
    attributes: Attributes = {"tenant": "<b>a", "n": 5, "raw": b"\xff"}
    client.push_many("tagged", [b"plain"] * 30, options=[{"attributes": {"tenant": "b"}}] * 30)
    client.push("tagged", b"wanted", attributes=attributes)
    console = open_console("queue/tagged")
    expect(console.main.get_by_text("The first 20, in the order of their pushes.")).to_be_visible()
    assert console.column("Messages", 7) == ["tenant=b"] * 20
    console.main.get_by_label("Attribute", exact=True).fill("n=5")
    expect(console.main.get_by_text("One message.")).to_be_visible()
    assert console.column("Messages", 7) == ["n=5, raw=/w==, tenant=<b>a"]
    expect(console.main.locator(".command code").last).to_have_text(
        re.compile(r"message peek tagged --max 20 --attribute n=5$")
    )
    console.main.get_by_role("region", name="Messages").get_by_role("button").click()
    table = console.main.get_by_role("region", name="Attributes").locator("tbody tr")
    assert [row.split("\t") for row in table.all_inner_texts()] == [
        ["n", "5", "number"],
        ["raw", "/w==", "binary"],
        ["tenant", "<b>a", "text"],
    ]
    assert console.violations(axe) == []
    console.main.get_by_label("Attribute", exact=True).fill("n=6")
    expect(console.main.get_by_text("No messages.", exact=True)).to_be_visible()
    assert console.errors == []
    # The other tests count queues.
    client.delete("tagged")


def test_everything_can_be_reached_by_keyboard(open_console: OpenConsole, client: Client) -> None:
    console = open_console("overview")
    page = console.page
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    for name in MENU:
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name=name, exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(console.main.get_by_role("heading", level=1)).to_have_text("Cluster")
    console.main.get_by_role("button", name="Take a snapshot").focus()
    page.keyboard.press("Enter")
    expect(console.dialog.get_by_role("button", name="Take")).to_be_focused()
    page.keyboard.press("Escape")
    expect(console.dialog).to_have_count(0)
    expect(console.main.get_by_role("button", name="Take a snapshot")).to_be_focused()
    assert console.errors == []


def test_theme_is_remembered(open_console: OpenConsole) -> None:
    console = open_console("overview", color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = console.page.evaluate(background)
    console.page.get_by_role("button", name="Theme: system").click()
    assert console.page.evaluate(background) != dark
    console.page.reload()
    expect(console.page.get_by_role("button", name="Theme: light")).to_be_visible()
    assert console.page.evaluate(background) != dark
    console.page.get_by_role("button", name="Theme: light").click()
    assert console.page.evaluate(background) == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_on_a_phone_and_is_readable(open_console: OpenConsole, axe: str, scheme: str) -> None:
    console = open_console(viewport={"width": 390, "height": 800}, has_touch=True, color_scheme=scheme)
    for route in [*PAGES, f"queue/{BUSY}"]:
        console.open(route)
        _wait_for_figures(console, route)
        assert console.page.evaluate("document.documentElement.scrollWidth") <= 390, route
        assert console.violations(axe) == [], f"{route} in {scheme}"
    # The last one was a queue, whose messages have pages.
    console.main.get_by_role("link", name=re.compile("^Page of message")).first.click()
    expect(console.row("Message", "State")).to_contain_text("ready")
    assert console.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert console.violations(axe) == [], f"a message in {scheme}"
    assert console.errors == []


def test_figures_and_names_are_readable_on_a_phone(open_console: OpenConsole, client: Client) -> None:
    name = "orders/of-a-customer-whose-name-is-long"
    client.push(name, b"x")
    client.push(name, b"later", delay=600)
    client.update_props(name, {"dead_letter_queue": f"{name}.dead", "open_transaction_timeout": 60})
    console = open_console(viewport={"width": 390, "height": 800}, has_touch=True)
    for tile in ("pushed", "pulled", "acked"):
        expect(console.main.locator(f"[data-tile={tile}]").get_by_text("a second")).to_be_visible()
    expect(console.row("Failed deliveries", "Timed out")).to_contain_text("the lease ended without an answer")
    console.open(f"queue/{name.replace('/', '%2F')}")
    properties = console.main.get_by_role("region", name="Properties")
    for one in ("dead_letter_queue", "open_transaction_timeout"):
        assert _lines(properties.get_by_text(one, exact=True)) == 1
    expect(console.main.get_by_text("delayed, due in")).to_be_visible()
    assert [text == "\N{EN DASH}" for text in console.column("Messages", 2) if text] == [False, True]
    console.open("queues?name=whose-name")
    link = console.main.get_by_role("link", name=name, exact=True)
    assert _lines(link) > 1, "the name is to be wrapped"
    # Each line begins after a separator.
    starts = link.evaluate(LINE_STARTS)
    assert all(name[start - 1] in "/-" for start in starts[1:]), starts
    # The other tests count queues.
    client.delete(name)
    assert console.errors == []


LINE_STARTS = """link => {
    const starts = [];
    const walker = document.createTreeWalker(link, NodeFilter.SHOW_TEXT);
    let before = 0, top = null;
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
        for (let place = 0; place < text.length; place++) {
            const range = document.createRange();
            range.setStart(text, place);
            range.setEnd(text, place + 1);
            const box = range.getClientRects()[0];
            if (top === null || box.top > top + 5) starts.push(before + place);
            top = box.top;
        }
        before += text.length;
    }
    return starts;
}"""
"""The positions in a text at which its lines begin."""


def _lines(text: Locator) -> int:
    """Return the number of lines of a text."""
    expect(text).to_be_visible()
    return len(text.evaluate(LINE_STARTS))


def test_nodes_are_side_by_side(open_console: OpenConsole, cluster: Cluster) -> None:
    console = open_console("nodes")
    _wait_for_figures(console, "nodes")
    table = console.main.get_by_role("region", name="Nodes")
    names = table.locator("thead th").all_inner_texts()
    assert [name.split()[0] for name in names] == ["Figure", "n1", "n2", "n3"]
    addresses = console.row("Nodes", "MessagePack-RPC").locator("td").all_inner_texts()
    assert addresses == [node.rpc for node in cluster]
    expect(console.row("Nodes", "Messages in memory").locator("meter")).to_have_count(3)
    link = table.get_by_role("link", name="Console of n2")
    assert link.get_attribute("href") == f"//{cluster[1].http}/console/#/nodes"
    assert console.errors == []


def test_a_list_without_an_answer_says_so(open_console: OpenConsole) -> None:
    console = open_console("overview")
    console.page.route("**/v1/leases*", lambda _route: None)
    console.open("clients")
    section = console.main.locator("section", has=console.page.get_by_role("heading", name="Who holds messages"))
    expect(section).to_contain_text(re.compile(r"Asking n1 since \d\d:\d\d:\d\d …"))
    assert console.errors == []


def test_holders_of_messages_are_shown(open_console: OpenConsole, cluster: Cluster) -> None:
    with Client(cluster[0].rpc) as consumer:
        consumer.push_many("held", [b"x"] * 3)
        held = consumer.pull_many("held", 2)
        console = open_console("clients")
        row = console.row("Who holds messages", "held")
        expect(row.locator("td").first).to_have_text("2")
        expect(row).to_contain_text("open")
        for message in held:
            message.ack()
    expect(row).to_have_count(0)
    call(cluster[0].http, "DELETE", "/queues/held")
    assert console.errors == []


def test_a_plot_says_that_it_collects_data(open_console: OpenConsole, client: Client, queue_name: str) -> None:
    client.push(queue_name, b"x")
    console = open_console(f"queue/{queue_name}")
    plot = console.main.get_by_role("img", name="Messages a second")
    expect(plot).to_have_attribute("aria-label", re.compile("Data is being collected"))
    expect(plot.get_by_text("Data is being collected.")).to_be_visible()
    expect(plot.locator("path").first).to_have_attribute("d", re.compile("M[^L]*L"))
    expect(plot).not_to_contain_text("Data is being collected.")
    # The other tests count queues.
    client.delete(queue_name)
    assert console.errors == []
