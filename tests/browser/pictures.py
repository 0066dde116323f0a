"""Pictures of the console in five situations, wide and narrow, light and dark.

``python -m tests.browser.pictures DIR`` starts real nodes, brings them into each situation, and writes PNG files.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, expect, sync_playwright

from lmqcluster import Client
from lmqcluster.wire.errors import LmqError
from tests.integration.cluster import Cluster, wait_for

from .console import Console
from .tools import chromium

SIZES: Final = {"wide": (1280, 900), "narrow": (390, 800)}
SCHEMES: Final = ("light", "dark")
LONG_NAME: Final = "ordersofacustomerwhosenamehasnohyphens" + "andisstillmuchlongerthanonewouldexpectofaname"
FEW_BYTES_MAX: Final = {"LMQ_DISK_BYTES_MAX": "6MiB", "LMQ_MEMORY_BYTES_MAX": "64MiB"}


def _work(cluster: Cluster) -> None:
    """Push, deliver and acknowledge some messages."""
    with Client(",".join(cluster.rpc_addresses)) as client:
        client.push_many("mail", [b"a letter %d" % number for number in range(40)])
        client.push_many(LONG_NAME, [b"x"] * 3)
        client.push("orders/of-a-customer-whose-name-is-long", b"x")
        for message in client.pull_many("mail", 20):
            message.ack()
        client.pull_many("mail", 5)


def _healthy(_cluster: Cluster) -> list[tuple[str, str]]:
    return [
        ("overview", "The cluster is well"),
        ("queues", "1 to 3 of 3 queues"),
        ("queue/mail", "a letter"),
        ("clients", "Connections"),
    ]


def _one_dead(cluster: Cluster) -> list[tuple[str, str]]:
    cluster[2].kill()
    return [
        ("overview", "not reachable or not up to date: n3"),
        ("nodes", "unreachable"),
        ("clients", "n3 does not answer"),
    ]


def _no_quorum(cluster: Cluster) -> list[tuple[str, str]]:
    for node in (cluster[1], cluster[2]):
        node.kill()
    return [("overview", "not reachable or not up to date: n2, n3"), ("queue/mail", "a letter"), ("cluster", "problem")]


def _dead_letters(cluster: Cluster) -> list[tuple[str, str]]:
    # The node counts from its first look at the queues on.
    wait_for(lambda: cluster[0].get_json("/v1/overview")["attention"]["age_s"] is not None, "the first look")
    with Client(",".join(cluster.rpc_addresses)) as client:
        client.update_props("mail", {"retry": 0, "dead_letter_queue": "mail.dead"})
        client.push_many("mail", [b'{"order": %d}' % number for number in range(300)])
        for message in client.pull_many("mail", 200):
            message.nack()
    return [
        ("overview", "Dead letters"),
        ("dead_letters", "mail.dead"),
        ("queue/mail.dead", "no deliveries left in mail"),
    ]


def _disk_nearly_full(cluster: Cluster) -> list[tuple[str, str]]:
    with Client(",".join(cluster.rpc_addresses), timeout_s=5.0) as client:
        for _ in range(200):
            try:
                client.push_many("archive", [os.urandom(1_000) for _ in range(500)])
            except LmqError:
                break
    return [("overview", "Disk limit"), ("nodes", "Messages on disk")]


SITUATIONS: Final[dict[str, Callable[[Cluster], list[tuple[str, str]]]]] = {
    "healthy": _healthy,
    "one-dead": _one_dead,
    "no-quorum": _no_quorum,
    "dead-letters": _dead_letters,
    "disk-full": _disk_nearly_full,
}


@contextmanager
def _situation(name: str) -> Iterator[tuple[Cluster, list[tuple[str, str]]]]:
    """Start a cluster and bring it into a situation; yield it with routes and texts that their pages show."""
    environment = FEW_BYTES_MAX if name == "disk-full" else {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(3, directory=Path(folder), environment=environment) as cluster,
    ):
        _work(cluster)
        yield cluster, SITUATIONS[name](cluster)


def _take(browser: Browser, cluster: Cluster, name: str, route: str, text: str, folder: Path) -> None:
    for size, (width, height) in SIZES.items():
        context = browser.new_context(viewport={"width": width, "height": height}, has_touch=size == "narrow")
        console = Console(context, cluster[0].http)
        console.open(route)
        expect(console.main.get_by_text(re.compile(re.escape(text))).filter(visible=True).first).to_be_visible()
        for scheme in SCHEMES:
            console.page.emulate_media(color_scheme=scheme)
            file = folder / f"{name}-{route.replace('/', '-')}-{size}-{scheme}.png"
            console.page.screenshot(path=file, full_page=True)
        context.close()


def main() -> None:
    """Take all pictures, or those of the named situations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the pictures")
    parser.add_argument("--only", choices=SITUATIONS, action="append", help="take pictures of this situation only")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name in arguments.only or SITUATIONS:
            with _situation(name) as (cluster, pages):
                for route, text in pages:
                    _take(browser, cluster, name, route, text, arguments.folder)
                    print(f"{name}: {route}", flush=True)


if __name__ == "__main__":
    main()
