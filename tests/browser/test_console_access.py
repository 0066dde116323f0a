"""The console of a cluster that requires tokens."""

from __future__ import annotations

import json
import re

from playwright.sync_api import expect

from tests.integration.cluster import Cluster, NodeProcess
from tests.integration.raw_http import call

from .conftest import OpenConsole
from .console import Console, understood

WRONG = "lmq_wrong"


def make_token(node: NodeProcess, name: str, role: str, token: str | None = None) -> str:
    """Create a token; `token` is an administrator's, which is needed once there is one."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    answer = call(node.http, "POST", "/v1/tokens", json.dumps({"name": name, "role": role}).encode(), headers)
    assert answer.status == 200, answer
    return str(answer.json["token"])


def enter(console: Console, token: str) -> None:
    """Enter a token in the dialog."""
    console.fill("Token", token)
    console.dialog.get_by_role("button", name="Use").click()


def test_tokens_and_the_permissions_of_their_roles(open_console: OpenConsole, cluster: Cluster, axe: str) -> None:
    node = cluster[0]
    console = open_console("overview")
    token_button = console.page.locator("#token")
    expect(console.tile("queues")).to_have_text("0")
    expect(token_button).to_be_hidden()
    assert console.errors == []

    # Once there is a token the open page asks for one.
    admin = make_token(node, "ops", "admin")
    read = make_token(node, "wallboard", "read", admin)
    call(node.http, "POST", "/messages/jobs", b"x", {"Authorization": f"Bearer {admin}"})
    expect(console.dialog).to_contain_text("Access token")
    assert console.violations(axe) == []
    enter(console, WRONG)
    expect(console.dialog.get_by_role("alert")).not_to_be_empty()
    enter(console, read)
    expect(console.dialog).to_have_count(0)
    expect(token_button).to_have_text("Token: read")
    expect(console.tile("ready")).to_have_text("1")

    # The role read sees everything and changes nothing.
    for route, buttons in {
        "queue/jobs": ["Push", "Suspend", "Move", "Purge", "Delete", "Edit", "Clear own"],
        "queues": ["New queue"],
        "defaults": ["New rule"],
        "tokens": ["New token"],
        "cluster": ["Take a snapshot", "Hand over leadership", "Join a cluster", "Leave the cluster", "Remove: n2"],
    }.items():
        console.open(route)
        for button in buttons:
            found = console.main.get_by_role("button", name=button, exact=True)
            expect(found).to_be_disabled()
            expect(found).to_have_attribute(
                "title", re.compile("^This needs the role .+; the token has the role read.$")
            )
        if route != "queues":
            expect(console.main).to_contain_text("Read-only")
        assert console.violations(axe) == []
    console.open("clients")
    expect(console.main).to_contain_text("Shown to tokens with the role admin.")
    console.open("queue/jobs")
    expect(console.main.locator("td.preview")).to_have_text("x")
    stored = "JSON.stringify([{...sessionStorage}, {...localStorage}])"
    assert read in console.page.evaluate(stored)
    assert WRONG not in console.page.evaluate(stored)

    # With an administrator's token the page can make changes.
    token_button.click()
    enter(console, admin)
    expect(token_button).to_have_text("Token: admin")
    console.press("Push")
    console.fill("Content", "y")
    console.confirm("Push")
    expect(console.tile("ready")).to_have_text("2")

    # Tokens are created and deleted in the console; a secret is shown once. Until the list of tokens has arrived, the
    # dialog offers the role for a further token, not the one for a first token.
    console.page.route("**/v1/tokens", lambda _route: None)
    console.open("tokens")
    console.press("New token")
    expect(console.dialog.get_by_label("Role", exact=True)).to_have_value("write")
    console.page.unroute("**/v1/tokens")
    console.fill("Name", "shop")
    console.fill("Queues", "^orders")
    console.fill("Principal", "shops")
    assert understood(console.dialog.locator(".command code").inner_text()) == ["token", "create"]
    console.dialog.get_by_role("button", name="Create").click()
    expect(console.dialog).to_contain_text("The secret is shown only now")
    secret = console.dialog.locator(".command code").inner_text()
    access = call(node.http, "GET", "/v1/access", b"", {"Authorization": f"Bearer {secret}"}).json
    assert (access["name"], access["role"], access["queues"], access["principal"]) == (
        "shop",
        "write",
        "^orders",
        "shops",
    )
    console.dialog.get_by_role("button", name="Done").click()
    expect(console.row("Tokens", "shop")).to_contain_text("never")
    expect(console.row("Tokens", "shop")).to_contain_text("shops")
    console.press("Delete token shop")
    console.fill("Type shop to confirm", "shop")
    assert understood(console.confirm("Delete")) == ["token", "delete"]
    expect(console.row("Tokens", "shop")).to_have_count(0)
    assert call(node.http, "GET", "/v1/access", b"", {"Authorization": f"Bearer {secret}"}).status == 401
    assert all("401" in error for error in console.errors), console.errors

    # Another tab does not have the token.
    other = open_console("overview", node=1)
    expect(other.dialog).to_contain_text("Access token")
    enter(other, admin)
    expect(other.tile("ready")).to_have_text("2")
