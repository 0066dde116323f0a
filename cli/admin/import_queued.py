"""``lmq-admin import queued``: drains a running queued into the cluster.

A message is polled, which hides it there for a minute; pushed here under a key that is made of its source, queue and id; then
deleted there. If the program is interrupted in between, the message comes back at the source and is pushed again under the
same key, which stores nothing as long as the cluster remembers the key.
"""

from __future__ import annotations

import base64
import http.client
import os
import time
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request

import click
import msgpack

from lmqcluster.wire.values import Scan

from ..shared.api import Api
from ..shared.errors import CliError, ExitCode
from ..shared.http_connections import opener
from ..shared.output import Column, print_table
from ..shared.target import Target, target_options

__all__ = ["queued"]

HIDDEN_S: Final = 60
"""How long a message is hidden at the source: less than the five minutes for which a key is remembered for certain."""
BATCH: Final = 64
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than 64 messages of queued have, unless they are too large for a node too."""
ANSWER_VALUES_MAX: Final = 4_000_000
"""Two million queues."""
TIMEOUT_S: Final = 60.0
WAIT_S: Final = 1.0
RETRY_WITHOUT_END: Final = (1 << 31) - 1
_COLUMNS: Final = [
    Column("Queue", "queue"),
    Column("Messages", "messages", right=True),
    Column("Left there", "left", right=True),
]


class Source:
    """A running queued."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise click.UsageError(f"{url!r} is not an address such as http://127.0.0.1:3333")
        self.name = parts.netloc
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._headers = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
        if key is not None:
            self._headers["Authorization"] = key
        self._opener = opener()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer.

        Raises:
            CliError: it cannot be reached, or refuses.
        """
        data = None if body is None else msgpack.packb(body)
        request = Request(f"{self._base}{path}", data=data, headers=self._headers, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                return _decoded(response.read(ANSWER_BYTES_MAX + 1))
        except HTTPError as exc:
            code = ExitCode.NOT_AUTHORISED if exc.code == 401 else ExitCode.UNAVAILABLE
            text = exc.read(500).decode("utf-8", "replace")
            raise CliError(f"queued at {self.name} answered {method} {path} with {exc.code}: {text!r}", code) from exc
        except (URLError, OSError, http.client.HTTPException, ValueError, msgpack.UnpackException) as exc:
            raise CliError(f"queued at {self.name} cannot be asked: {exc}; try again", ExitCode.UNAVAILABLE) from exc

    def queues(self) -> list[str]:
        """The names of all queues."""
        rows = self._rows(self.ask("GET", "/queues"), "queues", {"name": str})
        return sorted(row["name"] for row in rows)

    def poll(self, queue: str) -> list[dict[str, Any]]:
        """Some visible messages."""
        body = {"count": BATCH, "visibility_timeout_secs": HIDDEN_S, "ignore_existing_visibility_timeouts": False}
        answer = self.ask("POST", f"/queue/{quote(queue, safe='')}/messages/poll", body)
        return self._rows(answer, "messages", {"id": int, "poll_tag": int, "contents": bytes})

    def delete(self, queue: str, messages: list[dict[str, Any]]) -> None:
        """Delete messages."""
        named = [{"id": one["id"], "poll_tag": one["poll_tag"]} for one in messages]
        self.ask("POST", f"/queue/{quote(queue, safe='')}/messages/delete", {"messages": named})

    def left(self, queue: str) -> int:
        """How many messages the queue has, hidden ones included."""
        answer = self.ask("GET", f"/queue/{quote(queue, safe='')}/metrics")
        return int(self._rows({"metrics": [answer]}, "metrics", {"message_counter": int})[0]["message_counter"])

    def _rows(self, answer: Any, name: str, members: dict[str, type]) -> list[dict[str, Any]]:
        """Return the list of this name in an answer.

        Raises:
            CliError: it is not there, or its rows lack members of these types.
        """
        rows = answer.get(name) if isinstance(answer, dict) else None
        are_whole = isinstance(rows, list) and all(
            isinstance(row, dict) and all(type(row.get(one)) is kind for one, kind in members.items()) for row in rows
        )
        if not are_whole:
            raise CliError(f"{self.name} does not answer as queued does: {name} is malformed", ExitCode.BAD_DATA)
        return list(rows or [])


def _decoded(answer: bytes) -> Any:
    """Return what an answer holds, unless that is too much.

    Raises:
        ValueError: it has more bytes or values than queued's, or is malformed.
    """
    if len(answer) > ANSWER_BYTES_MAX:
        raise ValueError(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
    # A small value takes many times its bytes when it is decoded.
    if Scan(ANSWER_VALUES_MAX).feed(answer) != len(answer):
        raise ValueError("its answer is not one MessagePack value")
    return msgpack.unpackb(answer, strict_map_key=False)


def _take_over(source: Source, queue: str, api: Api, *, waits: bool) -> int:
    """Move the messages of a queue; returns how many were pushed."""
    path = f"/v1/queues/{quote(queue, safe='')}"
    api.patch(f"{path}/properties", {"retry": RETRY_WITHOUT_END})
    moved = 0
    while True:
        messages = source.poll(queue)
        if not messages:
            if not waits or not source.left(queue):
                return moved
            time.sleep(WAIT_S)
            continue
        rows = [
            {
                "content": {"base64": base64.b64encode(one["contents"]).decode("ascii")},
                "key": f"queued:{source.name}:{one['id']}",
            }
            for one in messages
        ]
        api.post(f"{path}/messages", {"messages": rows}, timeout_s=TIMEOUT_S)
        source.delete(queue, messages)
        moved += len(messages)


@click.command(short_help="Drain the queues of a running queued.")
@click.argument("url")
@click.option(
    "--queue", "names", multiple=True, metavar="NAME", help="Only this queue; may be repeated. [default: all]"
)
@click.option("--wait", "waits", is_flag=True, help="Also wait for messages that are hidden, until there are none.")
@target_options
def queued(target: Target, url: str, names: tuple[str, ...], waits: bool) -> None:
    """Drain the queues of the queued at URL into queues of the same names.

    QUEUED_API_KEY holds the key that it asks for, if any. Stop producers first, or let the command run until they have
    changed over.

    Each message is stored exactly once, also if the command is interrupted and started again within five minutes: a message
    that was stored but not deleted there comes back there after a minute, and is recognised here. After a longer
    interruption up to 64 messages may be stored twice. Give the same URL again, by which they are recognised. queued loses
    sight of messages whose poll was cut off until it is started again: restart it after an interruption, and run the command
    once more. It does not tell when a hidden message becomes visible, so those stay until they are visible.

    \b
    Example:
      lmq-admin import queued http://127.0.0.1:3333 --queue mail --wait
    """
    source = Source(url, os.environ.get("QUEUED_API_KEY"))
    rows: list[tuple[str, int, int]] = []
    for queue in names or source.queues():
        moved = _take_over(source, queue, target.api, waits=waits)
        rows.append((queue, moved, source.left(queue)))
    print_table(_COLUMNS, rows, view=target.view)
