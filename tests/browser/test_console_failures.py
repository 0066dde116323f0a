"""The console when nodes are lost."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from lmqcluster import Client
from tests.integration.cluster import Cluster

from .conftest import OpenConsole


def test_a_killed_node_a_lost_quorum_and_their_return(
    open_console: OpenConsole, cluster: Cluster, client: Client, axe: str
) -> None:
    client.push_many("jobs", [b"x"] * 25)
    console = open_console("overview")
    notice = console.page.locator(".notice")
    badge = console.page.locator("#connection")
    expect(console.tile("ready")).to_have_text("25")
    expect(notice).to_have_count(0)
    expect(console.main.locator(".findings")).to_contain_text("All is well")

    # Another node is killed: the cluster continues, the overview names the missing node.
    cluster[2].kill()
    expect(console.row("Nodes", "n3")).to_contain_text("unreachable")
    expect(console.main.locator(".findings")).to_contain_text("not reachable or not up to date: n3")
    expect(badge).to_have_text("n1: in quorum")

    # The next one too: this node still answers, and reports that it cannot serve.
    cluster[1].kill()
    expect(badge).to_have_text("n1: no quorum")
    expect(notice).to_contain_text("No quorum. n1 reaches 1 of 3 nodes and 2 are needed.")
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
    expect(badge).to_have_text("n1: in quorum")
    expect(notice).to_have_count(0)
    expect(console.row("Queues", "jobs")).to_contain_text("25")
