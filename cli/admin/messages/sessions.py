"""``lmq-admin session`` and ``lmq-admin lock``: the state of clients' sessions, and how to end it for dead clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, completes, queue_text, queue_value, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column, plural

__all__ = ["lock", "session"]

_PAGE: Final = 1_000
_SESSION_COLUMNS: Final = [
    Column("Session", "session"),
    Column("Owner", "owner", rank=1),
    Column("Leased", "leased", right=True),
    Column("Locks", "locks", right=True),
    Column("Queues", "queues", right=True),
    Column("TTL (s)", "ttl_s", right=True),
    Column("Expires in (s)", "ends_in_s", right=True),
]
_LOCK_COLUMNS: Final = [
    Column("Lock", "name"),
    Column("Session", "session"),
    Column("Token", "token", right=True),
    Column("Waiting", "waiting", right=True),
]


def _pages(api: Api, kind: str) -> Iterator[dict[str, Any]]:
    """Yield all rows of a list, page by page. Rows that change during the listing may be missing or appear twice."""
    offset = 0
    while rows := api.get(f"/v1/{kind}?offset={offset}&limit={_PAGE}")[kind]:
        yield from rows
        offset += _PAGE


def _session_ids(api: Api, _incomplete: str) -> list[object]:
    return [one["session"] for one in api.get(f"/v1/sessions?limit={_PAGE}")["sessions"]]


def _lock_names(api: Api, _incomplete: str) -> list[object]:
    return [one["name"] for one in api.get(f"/v1/locks?limit={_PAGE}")["locks"]]


@click.group(cls=AliasGroup)
def session() -> None:
    """List sessions, and end those of dead clients.

    A session holds leases, claims of exclusive queues, and locks. It expires if its client does not renew it.
    """


@session.command("ls")
@reads(_SESSION_COLUMNS)
def session_ls(target: Target) -> Report:
    """List all sessions with what they hold, the oldest first.

    Owner is the token that a session belongs to. Locks and Queues are those that it holds or waits for.

    \b
    Example:
      lmq-admin session ls
    """
    found = list(_pages(target.api, "sessions"))
    rows = [
        [
            one["session"],
            queue_text(one["owner"]) or None,
            one["leased"],
            one["locks"],
            one["queues"],
            int(one["ttl_s"]),
            int(one["ends_in_s"]),
        ]
        for one in found
    ]
    return Report({"sessions": found}, _SESSION_COLUMNS, rows, empty="No sessions.")


@session.command("end")
@click.argument("id_", metavar="SESSION", shell_complete=completes(_session_ids))
@destructive_options
@target_options
def session_end(target: Target, id_: str, yes: bool, dry_run: bool) -> None:
    """End a session and release everything that it holds.

    Its leased messages return to their positions in the queues; its locks and exclusive queues pass to the next
    session. A client still working in the session gets an error for its next request; work done until then may be done
    twice.

    \b
    Example:
      lmq-admin session end c3ef6694-e8d6-4e48-806c-000000000007 --yes
    """
    found = next((one for one in _pages(target.api, "sessions") if one["session"] == id_), None)
    if found is None:
        raise CliError(f"session {id_} does not exist; see lmq-admin session ls", ExitCode.NOT_FOUND)
    held = (
        f"{plural(found['leased'], 'lease')}, {plural(found['locks'], 'lock')} and {plural(found['queues'], 'queue')}"
    )
    if not confirm(f"end session {id_}, with {held}", yes=yes, dry_run=dry_run):
        return
    answer = target.api.delete(f"/v1/sessions/{Api.segment(id_)}")
    target.print_result(answer, f"Session {id_} {'was ended' if answer['ended'] else 'had already ended'}.")


@click.group(cls=AliasGroup)
def lock() -> None:
    """List locks, and free those of stuck clients."""


@lock.command("ls")
@reads(_LOCK_COLUMNS)
def lock_ls(target: Target) -> Report:
    """List the locks that sessions hold, the oldest first.

    Token is the fencing token of the holder. Waiting is the number of sessions that wait for the lock.

    \b
    Example:
      lmq-admin lock ls
    """
    found = list(_pages(target.api, "locks"))
    rows = [[queue_text(one["name"]), one["session"], one["token"], one["waiting"]] for one in found]
    return Report({"locks": found}, _LOCK_COLUMNS, rows, empty="No lock is held.")


@lock.command("free")
@click.argument("name", metavar="LOCK", shell_complete=completes(_lock_names))
@destructive_options
@target_options
def lock_free(target: Target, name: str, yes: bool, dry_run: bool) -> None:
    """Take a lock from its holder; the next waiting session gets it, with a larger token.

    The former holder is not notified. The resource that the lock protects must refuse its token from now on; otherwise
    both work at once.

    \b
    Example:
      lmq-admin lock free nightly --yes
    """
    found = next((one for one in _pages(target.api, "locks") if one["name"] == queue_value(name)), None)
    if found is None:
        raise CliError(f"lock {name} is not held; see lmq-admin lock ls", ExitCode.NOT_FOUND)
    holder = f"session {found['session']}, token {found['token']}; {plural(found['waiting'], 'session')} waiting"
    if not confirm(f"take the lock {name} from its holder ({holder})", yes=yes, dry_run=dry_run):
        return
    answer = target.api.delete(f"/v1/locks/{Api.segment(name)}", {"session": found["session"]})
    target.print_result(answer, f"Lock {name} {'was freed' if answer['freed'] else 'had already been freed'}.")
