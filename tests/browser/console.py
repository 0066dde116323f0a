"""The console as a person uses it: pages, buttons and dialogs by their labels."""

from __future__ import annotations

import re
import shlex
from typing import Any

import click
from lmqcluster_cli.admin.program import cli
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, expect

DEADLINE_MS = 120_000
PAGES = {
    "overview": "Overview",
    "nodes": "Nodes",
    "queues": "Queues",
    "dead_letters": "Dead letters",
    "clients": "Clients",
    "schedules": "Schedules",
    "sessions": "Sessions",
    "subscriptions": "Subscriptions",
    "defaults": "Default properties",
    "tokens": "Tokens",
    "cluster": "Cluster",
}
MENU = [*(PAGES | {"defaults": "Defaults"}).values()]
"""Names of the pages in the menu, which has less room than their headings."""
SERIOUS = {"serious", "critical"}

expect.set_options(timeout=DEADLINE_MS)


class Console:
    """One tab with the console of the node at `address`.

    Attributes:
        page: the tab.
        errors: errors of the browser, and requests to addresses other than the node.
    """

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.address = address
        self.page = context.new_page()
        self.page.set_default_timeout(DEADLINE_MS)
        self.errors: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(f"{error}"))
        self.page.on("request", lambda request: self._asked(request.url))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(f"{message.text} ({message.location.get('url')})")

    def _asked(self, url: str) -> None:
        if not url.startswith(f"http://{self.address}/"):
            self.errors.append(f"a request to {url}")

    def open(self, route: str) -> None:
        """Load the console at a route such as ``queue/jobs``."""
        self.page.goto(f"http://{self.address}/console/#/{route}")
        try:
            expect(self.page.locator("#connection")).to_have_text(re.compile("quorum|finding|access"))
        except AssertionError as exc:
            visible = self.page.evaluate("document.visibilityState")
            raise AssertionError(f"{exc}\nthe page is {visible}; the browser says: {self.errors}") from None

    @property
    def main(self) -> Locator:
        """Return the page's content."""
        return self.page.locator("main")

    @property
    def dialog(self) -> Locator:
        """Return the open dialog."""
        return self.page.get_by_role("dialog")

    def press(self, button: str) -> None:
        """Press a button of the page."""
        self.main.get_by_role("button", name=button, exact=True).click()

    def fill(self, label: str, text: str) -> None:
        """Fill in a field of the open dialog."""
        self.dialog.get_by_label(label, exact=True).fill(text)

    def confirm(self, button: str) -> str:
        """Press a button of the open dialog and wait until it has finished; return the command that was shown."""
        confirming = self.dialog.get_by_role("button", name=button, exact=True)
        confirming.wait_for()
        command = self.dialog.locator(".command code")
        line = command.inner_text() if command.count() else ""
        confirming.click()
        expect(self.dialog).to_have_count(0)
        return line

    def tile(self, name: str) -> Locator:
        """Return the value of a tile."""
        return self.main.locator(f"[data-tile={name}] dd").first

    def row(self, table: str, name: str) -> Locator:
        """Return a row of a table by its first cell."""
        rows = self.main.get_by_role("region", name=table, exact=True).locator("tbody tr")
        return rows.filter(has=self.page.locator("th").filter(has_text=re.compile(rf"^{re.escape(name)}\b")))

    def column(self, table: str, place: int) -> list[str]:
        """Return the texts of a column of a table, counted from 0."""
        rows = self.main.get_by_role("region", name=table, exact=True).locator("tbody tr")
        cells = rows.locator(f"th:nth-child({place + 1}), td:nth-child({place + 1})")
        return [text.strip() for text in cells.all_inner_texts()]

    def violations(self, axe: str) -> list[str]:
        """Return the serious problems that axe-core finds on the current page."""
        if not self.page.evaluate("typeof window.axe === 'object'"):
            self.page.evaluate(axe)
        found: Any = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']]}"
            for one in found["violations"]
            if one["impact"] in SERIOUS
        ]


def understood(line: str) -> list[str]:
    """Parse a command line of the console with lmq-admin; return the names of the commands.

    Raises:
        click.UsageError: lmq-admin does not know it.
    """
    # A shell gives the text after <<<, or what another program decodes, to the program as its input.
    program, *arguments = shlex.split(line.rpartition(" | ")[2].partition(" <<< ")[0])
    assert program == "lmq-admin"
    names: list[str] = []
    command: click.Command = cli
    context = cli.make_context("lmq-admin", arguments, resilient_parsing=False)
    while isinstance(command, click.Group):
        # The rest of a group is its subcommand with its arguments.
        rest = [*context._protected_args, *context.args]
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        names.append(str(name))
        command = found
        context = found.make_context(str(name), rest, parent=context)
    return names
