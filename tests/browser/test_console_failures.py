"""The console when nodes are lost."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from lmqcluster import Client
from lmqcluster.wire.errors import LmqError
from tests.integration.cluster import Cluster, NodeProcess

from .conftest import OpenConsole
from .console import Console

UNKNOWN = "\N{EN DASH}"


def test_a_killed_node_a_lost_quorum_and_their_return(
    open_console: OpenConsole, cluster: Cluster, client: Client, axe: str
) -> None:
    client.push_many("jobs", [b"x"] * 25)
    console = open_console("overview")
    notice = console.page.locator(".notice")
    badge = console.page.locator("#connection")
    expect(console.tile("ready")).to_have_text("25")
    expect(notice).to_have_count(0)
    expect(console.main.locator(".findings")).to_contain_text("The cluster is well: 3 nodes")
    expect(badge).to_have_text("n1: no findings")
    expect(badge).to_have_class("badge good")

    # Another node is killed: the cluster continues, the overview names the missing node.
    cluster[2].kill()
    expect(console.row("Nodes", "n3")).to_contain_text("unreachable")
    expect(console.main.locator(".findings")).to_contain_text("not reachable or not up to date: n3")
    expect(console.main.locator(".findings")).to_contain_text(
        "“Replace a dead node” in docs/operations.md of lmqcluster's"
    )
    lag = console.row("Nodes", "n3").locator("td").nth(1)
    expect(lag).to_have_text(UNKNOWN)
    console.open("clients")
    expect(console.main).to_contain_text("n3 does not answer, so its clients are missing here.")
    # Without scrolling, on a phone too.
    phone = open_console("nodes", viewport={"width": 390, "height": 800}, has_touch=True)
    expect(phone.main.get_by_role("status").get_by_text("unreachable", exact=True)).to_be_in_viewport()
    expect(phone.main.get_by_role("status")).to_contain_text("n3 unreachable")
    console.open("overview")
    # A node in a quorum with findings is not well.
    expect(badge).to_have_text(re.compile(r"^n1: \d findings?$"))
    expect(badge).to_have_class("badge warn")

    # The rates of the seconds before the outage are no rates of now.
    queue = open_console("queue/jobs")
    listed = open_console("queues")
    expect(listed.row("Queues", "jobs")).to_contain_text("25")
    _push_until_shown(client, (console.tile("pushed"), queue.tile("pushed")))

    # The next one too: this node still answers, and reports that it cannot serve.
    cluster[1].kill()
    expect(badge).to_have_text("n1: no quorum")
    expect(notice).to_contain_text("No quorum. n1 reaches 1 of 3 nodes and 2 are needed.")
    expect(notice).to_contain_text("start or reconnect n2 or n3")
    expect(console.main.locator(".findings.outage")).to_contain_text("“Lost quorum” in docs/operations.md")
    expect(console.main.locator(".findings")).not_to_contain_text("safe to stop")
    expect(notice).to_contain_text("The figures show its copy of the data; rates are unknown.")
    for page in (console, queue):
        for rate in ("pushed", "pulled", "acked"):
            expect(page.tile(rate)).to_have_text(UNKNOWN)
        plot = page.main.locator("figure", has_text="Messages a second")
        expect(plot).to_contain_text("last known")
        expect(plot.locator("li b")).to_have_text([UNKNOWN] * 4)
    expect(console.row("Queues with the most messages", "jobs").locator("td").nth(2)).to_have_text(UNKNOWN)
    for column in (8, 10):
        expect(listed.row("Queues", "jobs").locator("td").nth(column)).to_have_text(UNKNOWN)
    expect(listed.row("Queues", "jobs")).to_contain_text("\N{GREATER-THAN OR EQUAL TO}")
    expect(queue.row("Totals", "Pushed").locator("td").nth(1)).to_have_text(UNKNOWN)
    expect(queue.main).to_contain_text("Unknown without a quorum.")
    # A queue's page says that it waits for an answer, and offers no change.
    queue = open_console("queue/jobs")
    expect(queue.main.get_by_role("button", name="Purge", exact=True)).to_be_disabled()
    expect(queue.main.get_by_role("button", name="Push", exact=True)).to_have_attribute(
        "title", re.compile("no quorum")
    )
    expect(queue.tile("ready")).to_have_text("25")
    # The cluster's clock has stopped.
    for page in (queue, console):
        expect(page.tile("oldest")).to_have_text(re.compile("^≥ .+ s$"))
    assert queue.violations(axe) == []
    # Joining another cluster cannot work, and the button says why.
    members = open_console("cluster")
    join = members.main.get_by_role("button", name="Join a cluster", exact=True)
    expect(join).to_be_disabled()
    expect(join).to_have_attribute("title", re.compile("one of 3 members.* Without a quorum it cannot leave"))
    expect(console.tile("ready")).to_have_text("25")
    assert console.violations(axe) == []
    assert console.errors == []

    # The node of this page is killed while it is open: the last figures stay, and the page retries.
    cluster[0].kill()
    expect(badge).to_have_text("n1: no answer")
    expect(notice).to_contain_text(re.compile(r"No answer\. n1 does not answer since \d\d:\d\d:\d\d"))
    expect(console.tile("ready")).to_have_text("25")
    expect(console.row("Nodes", "n2")).to_be_visible()
    expect(console.main.locator(".findings")).to_be_hidden()
    expect(notice.get_by_role("link", name="n2")).to_have_attribute("href", f"//{cluster[1].http}/console/")
    assert console.violations(axe) == []
    console.page.get_by_role("link", name="Queues", exact=True).click()
    expect(console.main.get_by_role("heading", level=1)).to_have_text("Queues")
    # A request in flight is cut off, the others are refused.
    assert all("net::ERR_" in error for error in console.errors), console.errors

    # All nodes return, and so does the page, by itself.
    cluster.start()
    expect(badge).to_have_text(re.compile("n1: (in quorum|.* findings?)"))
    expect(notice).to_have_count(0)
    expect(console.row("Queues", "jobs")).to_contain_text("25")
    expect(queue.main.get_by_role("button", name="Purge", exact=True)).to_be_enabled()
    expect(queue.tile("pushed")).to_have_text("0")


def _push_until_shown(client: Client, tiles: tuple[Locator, ...]) -> None:
    """Push, pull and acknowledge until the tiles show a rate."""
    for _ in range(150):
        client.push_many("jobs", [b"x"])
        client.pull_many("jobs", 1)[0].ack()
        if all(re.fullmatch(r"[\d.]*[1-9][\d.]*", tile.inner_text()) for tile in tiles):
            return
        tiles[0].page.wait_for_timeout(100)
    pytest.fail("pushes do not show in the rates")


def push_until_refused(client: Client) -> None:
    for _ in range(200):
        client.push_many("archive", [os.urandom(1_000) for _ in range(500)])


def test_a_node_that_refuses_pushes_is_an_outage(browser: Browser, tmp_path: Path) -> None:
    limits = {"LMQ_DISK_BYTES_MAX": "6MiB", "LMQ_MEMORY_BYTES_MAX": "64MiB"}
    with NodeProcess(tmp_path, environment=limits) as node, Client(node.rpc, timeout_s=2.0) as client:
        context = browser.new_context()
        console = Console(context, node.http)
        console.open("overview")
        expect(console.main.locator(".findings")).to_contain_text("The cluster is well")
        expect(console.main.locator(".findings.outage")).to_have_count(0)
        with pytest.raises(LmqError, match=r"are allowed \(disk_bytes_max\)"):
            push_until_refused(client)
        expect(console.main.locator(".findings.outage")).to_contain_text("pushes are refused: snapshots and pages take")
        expect(console.page.locator("#connection")).to_have_class("badge bad")
        context.close()
