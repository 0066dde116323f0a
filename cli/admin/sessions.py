"""``lmq-admin session`` and ``lmq-admin lock``: what clients hold in sessions, and taking it from those that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from ..shared.aliases import AliasGroup
from ..shared.api import Api
from ..shared.confirm import confirm, destructive_options
from ..shared.errors import CliError, ExitCode
from ..shared.output import Column, plural
from ..shared.reads import Report, reads
from ..shared.target import Target, completes, queue_text, queue_value, target_options
from .done import tell

__all__ = ["lock", "session"]

_PAGE: Final = 1_000
_SESSION_COLUMNS: Final = [
    Column("Session", "session"),
    Column("Owner", "owner", rank=1),
    Column("Leased", "leased", right=True),
    Column("Locks", "locks", right=True),
    Column("Queues", "queues", right=True),
    Column("Lives (s)", "ttl_s", right=True),
    Column("Ends in (s)", "ends_in_s", right=True),
]
_LOCK_COLUMNS: Final = [
    Column("Lock", "name"),
    Column("Session", "session"),
    Column("Token", "token", right=True),
    Column("Waiting", "waiting", right=True),
]


def _pages(api: Api, kind: str) -> Iterator[dict[str, Any]]:
    """All rows of a list, page by page; rows that come or go meanwhile may be missed, or be there twice."""
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
    """List sessions, and end those whose clients are gone.

    A session holds leases, turns at exclusive queues and locks. It ends by itself when its client does not renew it.
    """


@session.command("ls")
@reads(_SESSION_COLUMNS)
def session_ls(target: Target) -> Report:
    """List all sessions with what they hold, the oldest first.

    Owner is the token that a session counts to. Locks and Queues are those that it has or waits for.

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
    """End a session with all that it holds.

    Its leases return to their places in the queues, its locks and turns pass on. A client that is still at work in it is told so
    with its next request; what it does until then may be done twice.

    \b
    Example:
      lmq-admin session end c3ef6694-e8d6-4e48-806c-000000000007 --yes
    """
    found = next((one for one in _pages(target.api, "sessions") if one["session"] == id_), None)
    if found is None:
        raise CliError(f"there is no session {id_}: see lmq-admin session ls", ExitCode.NOT_FOUND)
    held = f"{plural(found['leased'], 'lease')}, {plural(found['locks'], 'lock')} and {plural(found['queues'], 'turn')}"
    if not confirm(f"end session {id_}, with {held}", yes=yes, dry_run=dry_run):
        return
    answer = target.api.delete(f"/v1/sessions/{Api.segment(id_)}")
    tell(target, answer, f"Session {id_} {'is ended' if answer['ended'] else 'had ended already'}.")


@click.group(cls=AliasGroup)
def lock() -> None:
    """List locks, and free those whose clients are stuck."""


@lock.command("ls")
@reads(_LOCK_COLUMNS)
def lock_ls(target: Target) -> Report:
    """List the locks that sessions hold, the oldest first.

    Token is the fencing token of the session that has the lock. Waiting is how many other sessions wait for it.

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
    """Take a lock from the session that has it; the next in line gets it, with a larger token.

    The client that had it is not told. What the lock protects must refuse its token from now on, or both work at once.

    \b
    Example:
      lmq-admin lock free nightly --yes
    """
    found = next((one for one in _pages(target.api, "locks") if one["name"] == queue_value(name)), None)
    if found is None:
        raise CliError(f"nobody has the lock {name}: see lmq-admin lock ls", ExitCode.NOT_FOUND)
    holder = f"session {found['session']}, token {found['token']}; {plural(found['waiting'], 'session')} in line"
    if not confirm(f"take the lock {name} from its holder ({holder})", yes=yes, dry_run=dry_run):
        return
    answer = target.api.delete(f"/v1/locks/{Api.segment(name)}", {"session": found["session"]})
    tell(target, answer, f"Lock {name} {'is freed' if answer['freed'] else 'was freed already'}.")
