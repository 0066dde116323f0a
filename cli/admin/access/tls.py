"""``lmq-admin tls``: certificates for client ports and peer connections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from ...shared.aliases import AliasGroup
from ...shared.certificates import Authority

__all__ = ["tls"]

_NODE: Final = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63})(=(?P<hosts>.+))?")


@click.group(cls=AliasGroup)
def tls() -> None:
    """Create certificates for nodes, for client and peer connections."""


@tls.command("init", short_help="Create an authority and certificates for nodes.")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE[=HOST,...]...")
@click.option(
    "--dir",
    "folder",
    default="tls",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the files.",
)
@click.option("--days", default=397, show_default=True, type=click.IntRange(1, 3650), help="Validity in days.")
@click.option("--renew", is_flag=True, help="Replace existing certificates and keys of nodes.")
@click.option("--no-loopback", is_flag=True, help="Omit localhost, 127.0.0.1 and ::1 from the certificates.")
def tls_init(nodes: tuple[str, ...], folder: Path, days: int, renew: bool, no_loopback: bool) -> None:
    """Create an authority (ca.crt, ca.key) and a certificate for every NODE (NODE.crt, NODE.key).

    An existing authority is reused.

    HOSTs are the names and addresses by which clients reach the node, by default NODE itself:
    n1=10.0.0.1,n1.example.org.

    A node gets its own two files (tls_cert, tls_key) and, for TLS with other nodes, ca.crt (raft_tls_ca). Clients get
    ca.crt. Keep ca.key secret: it can impersonate any node. The nodes load renewed files by themselves.

    \b
    Example:
      lmq-admin tls init q1=10.0.0.1 q2=10.0.0.2 q3=10.0.0.3 --dir tls
    """
    wanted = [_node(text) for text in nodes]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority.open(folder)
    if authority is None:
        authority = Authority.create(folder)
        print(folder / "ca.crt")
        print(folder / "ca.key")
    loopback = [] if no_loopback else ["localhost", "127.0.0.1", "::1"]
    for name, hosts in wanted:
        for file in authority.issue(name, [*hosts, *loopback], days, replace=renew):
            print(file)


def _node(text: str) -> tuple[str, list[str]]:
    match = _NODE.fullmatch(text)
    if match is None or match["name"] == "ca":
        raise click.UsageError(f"{text!r} is not NAME or NAME=HOST,...; NAME must be a valid file name other than ca")
    hosts = [host.strip() for host in (match["hosts"] or match["name"]).split(",") if host.strip()]
    return match["name"], hosts
