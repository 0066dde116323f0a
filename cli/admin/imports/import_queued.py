"""``lmq-admin import queued``: drains a running queued into the cluster.

A message is polled, which hides it at the source for a minute; pushed with an idempotency key made of its source, queue
and id; then deleted at the source. If the program is interrupted in between, the message becomes visible at the source
again and is pushed with the same key, which stores nothing while the cluster remembers the key.
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

from ...shared.connection.api import Api
from ...shared.connection.http_connections import opener
from ...shared.connection.target import Target, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column, print_table

__all__ = ["queued"]

HIDDEN_S: Final = 60
"""How long a message is hidden at the source: less than the five minutes for which keys are guaranteed."""
BATCH: Final = 64
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than 64 messages of queued, unless they exceed the limits of a node too."""
ANSWER_VALUES_MAX: Final = 4_000_000
"""Enough for two million queues."""
TIMEOUT_S: Final = 60.0
WAIT_S: Final = 1.0
RETRY_WITHOUT_END: Final = (1 << 31) - 1
_COLUMNS: Final = [
    Column("Queue", "queue"),
    Column("Messages", "messages", right=True),
    Column("Left at the source", "left", right=True),
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
        """Send a request; return the decoded answer.

        Raises:
            CliError: the source is unreachable or refuses.
        """
        data = None if body is None else msgpack.packb(body)
        request = Request(f"{self._base}{path}", data=data, headers=self._headers, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                return _decode(response.read(ANSWER_BYTES_MAX + 1))
        except HTTPError as exc:
            code = ExitCode.NOT_AUTHORISED if exc.code == 401 else ExitCode.UNAVAILABLE
            text = exc.read(500).decode("utf-8", "replace")
            raise CliError(f"queued at {self.name} answered {method} {path} with {exc.code}: {text!r}", code) from exc
        except (URLError, OSError, http.client.HTTPException, ValueError, msgpack.UnpackException) as exc:
            raise CliError(f"queued at {self.name} cannot be reached: {exc}; try again", ExitCode.UNAVAILABLE) from exc

    def queues(self) -> list[str]:
        """Return the names of all queues."""
        rows = self._rows(self.ask("GET", "/queues"), "queues", {"name": str})
        return sorted(row["name"] for row in rows)

    def poll(self, queue: str) -> list[dict[str, Any]]:
        """Return some visible messages, hiding them."""
        body = {"count": BATCH, "visibility_timeout_secs": HIDDEN_S, "ignore_existing_visibility_timeouts": False}
        answer = self.ask("POST", f"/queue/{quote(queue, safe='')}/messages/poll", body)
        return self._rows(answer, "messages", {"id": int, "poll_tag": int, "contents": bytes})

    def delete(self, queue: str, messages: list[dict[str, Any]]) -> None:
        """Delete messages."""
        named = [{"id": one["id"], "poll_tag": one["poll_tag"]} for one in messages]
        self.ask("POST", f"/queue/{quote(queue, safe='')}/messages/delete", {"messages": named})

    def left(self, queue: str) -> int:
        """Return the number of messages in the queue, including hidden ones."""
        answer = self.ask("GET", f"/queue/{quote(queue, safe='')}/metrics")
        return int(self._rows({"metrics": [answer]}, "metrics", {"message_counter": int})[0]["message_counter"])

    def _rows(self, answer: Any, name: str, members: dict[str, type]) -> list[dict[str, Any]]:
        """Return the list of this name in an answer.

        Raises:
            CliError: it is missing, or its rows lack members of these types.
        """
        rows = answer.get(name) if isinstance(answer, dict) else None
        are_whole = isinstance(rows, list) and all(
            isinstance(row, dict) and all(type(row.get(one)) is kind for one, kind in members.items()) for row in rows
        )
        if not are_whole:
            raise CliError(f"the answer of {self.name} is not one of queued: {name} is malformed", ExitCode.BAD_DATA)
        return list(rows or [])


def _decode(answer: bytes) -> Any:
    """Decode an answer.

    Raises:
        ValueError: it exceeds the limits of bytes or values, or is malformed.
    """
    if len(answer) > ANSWER_BYTES_MAX:
        raise ValueError(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
    # A decoded small value takes many times its encoded size.
    if Scan(ANSWER_VALUES_MAX).feed(answer) != len(answer):
        raise ValueError("the answer is not one MessagePack value")
    return msgpack.unpackb(answer, strict_map_key=False)


def _take_over(source: Source, queue: str, api: Api, *, waits: bool) -> int:
    """Move the messages of a queue; return how many were pushed."""
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
@click.option("--wait", "waits", is_flag=True, help="Also wait until no message is hidden.")
@target_options
def queued(target: Target, url: str, names: tuple[str, ...], waits: bool) -> None:
    """Drain the queues of the queued at URL into queues of the same names.

    QUEUED_API_KEY is the API key of the source, if it requires one. Stop producers first, or keep the command running
    until they have switched over.

    Each message is stored exactly once, even if the command is interrupted and repeated within five minutes: a message
    that was stored but not deleted at the source becomes visible there after a minute and is recognised by its key.
    After a longer interruption, up to 64 messages may be stored twice. Use the same URL again, because it is part of
    the keys. queued loses messages whose poll was interrupted until it is restarted: restart it after an interruption,
    and run the command once more. Hidden messages remain at the source until they become visible.

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
