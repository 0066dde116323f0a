"""``lmq-admin client``: connections, waiting pulls and held messages of the clients of all nodes."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

import click

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, complete_queue, queue_text, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column, plural

__all__ = ["client"]

_PAGE: Final = 1_000
_PORTS: Final = {"http": "HTTP", "msgpack_rpc": "MessagePack-RPC"}
_CONNECTION_COLUMNS: Final = [
    Column("Node", "node"),
    Column("Client", "client"),
    Column("Protocol", "protocol"),
    Column("Token", "token", rank=1),
    Column("Open for (s)", "age_s", right=True),
    Column("Memory (bytes)", "held_bytes", right=True, rank=2),
]
_WAITING_COLUMNS: Final = [
    Column("Node", "node"),
    Column("Queue or pattern", "queue"),
    Column("Waiting pulls", "pulls", right=True),
    Column("Messages wanted", "messages", right=True),
]
_LEASE_COLUMNS: Final = [
    Column("Queue", "queue", cut="middle"),
    Column("Leased", "leased", right=True),
    Column("Expires in (s)", "ends_in_s", right=True),
    Column("Client", "client"),
    Column("Connected", "connected"),
    Column("Token", "token", rank=1),
    Column("Protocol", "protocol", rank=2),
    Column("Node", "node"),
]


@click.group(cls=AliasGroup)
def client() -> None:
    """List the clients of all nodes: connections, waiting pulls and held messages; close connections."""


def _of_all_nodes(api: Api, path: str, member: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of every node, and the nodes that do not answer.

    Rows that change during the listing may be missing or appear twice.
    """
    rows: list[dict[str, Any]] = []
    silent: set[str] = set()
    separator = "&" if "?" in path else "?"
    for offset in count(0, _PAGE):
        answer = api.get(f"{path}{separator}all_nodes&offset={offset}&limit={_PAGE}")
        rows += answer[member]
        silent.update(answer["unreachable"])
        if offset + _PAGE >= answer["total"]:
            break
    return rows, sorted(silent)


def _remark(silent: list[str]) -> str:
    return f"No answer from {', '.join(silent)}." if silent else ""


@client.command("ls")
@reads(_CONNECTION_COLUMNS)
def client_ls(target: Target) -> Report:
    """List the connections of clients.

    \b
    Example:
      lmq-admin client ls --sort=-age_s
    """
    found, silent = _of_all_nodes(target.api, "/v1/connections", "connections")
    rows = [
        [
            one["node"],
            one["address"],
            _PORTS.get(one["port"], one["port"]),
            one["user"] or None,
            int(one["age_s"]),
            one["held_bytes"],
        ]
        for one in found
    ]
    value = {"connections": found, "unreachable": silent}
    return Report(value, _CONNECTION_COLUMNS, rows, empty="No client is connected.", remark=_remark(silent))


@client.command("waiting")
@reads(_WAITING_COLUMNS)
def client_waiting(target: Target) -> Report:
    """List the waiting pulls by queue or pattern.

    \b
    Example:
      lmq-admin client waiting
    """
    found, silent = _of_all_nodes(target.api, "/v1/consumers", "consumers")
    rows = [[one["node"], _wait_target(one), one["pulls"], one["messages"]] for one in found]
    value = {"consumers": found, "unreachable": silent}
    return Report(value, _WAITING_COLUMNS, rows, empty="No pull is waiting.", remark=_remark(silent))


def _wait_target(row: dict[str, Any]) -> str:
    return f"pattern {queue_text(row['pattern'])}" if "pattern" in row else str(queue_text(row["queue"]))


@client.command("leases")
@click.argument("queue", required=False, shell_complete=complete_queue)
@reads(_LEASE_COLUMNS)
def client_leases(target: Target, queue: str | None) -> Report:
    """List the clients that hold leased messages, of one QUEUE or of all.

    A lease does not end with the connection that the message was delivered over: "no" under Connected means that the
    client is gone or uses another connection. The list omits messages that a node delivered before its restart,
    messages of subscriptions, and messages delivered over the protocols of Kestrel and queued.

    \b
    Example:
      lmq-admin client leases mail
    """
    path = "/v1/leases" if queue is None else f"/v1/leases?queue={Api.segment(queue)}"
    found, silent = _of_all_nodes(target.api, path, "leases")
    found.sort(key=lambda one: -one["leased"])
    rows = [
        [
            queue_text(one["queue"]),
            one["leased"],
            None if one["ends_in_s"] is None else int(one["ends_in_s"]),
            one["address"],
            "yes" if one["connected"] else "no",
            one["user"] or None,
            _PORTS.get(one["port"], one["port"]),
            one["node"],
        ]
        for one in found
    ]
    value = {"leases": found, "unreachable": silent}
    return Report(value, _LEASE_COLUMNS, rows, empty="No message is leased.", remark=_remark(silent))


@client.command("close")
@click.argument("where", metavar="NODE")
@click.argument("address", metavar="CLIENT")
@destructive_options
@target_options
def client_close(target: Target, where: str, address: str, yes: bool, dry_run: bool) -> None:
    """Close the connections of CLIENT, an address that `client ls` shows, at NODE.

    Waiting pulls of the client end; its leases stay until they expire. It may connect again: `token rm` refuses it.

    \b
    Example:
      lmq-admin client close n2 10.0.0.7:53412 --yes
    """
    if not confirm(f"close the connections of {address} to {where}", yes=yes, dry_run=dry_run):
        return
    answer = target.api.post("/v1/connections/close", {"node": where, "address": address})
    if not answer["closed"]:
        raise CliError(f"{address} is not connected to {where}; see lmq-admin client ls", ExitCode.NOT_FOUND)
    target.print_result(answer, f"Closed {plural(answer['closed'], 'connection')}.")
