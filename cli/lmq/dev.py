"""``lmq dev``: a cluster on this machine, for trying."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from lmqcluster.node.config.config import FRONT_ENDS_MAX
from lmqcluster.node.process.standard_output import never_wait_for_readers

from .local_cluster import DevCluster, DevSettings

__all__ = ["dev"]


@click.command(short_help="Run a cluster on this machine, for trying.")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 9), help="Number of nodes.")
@click.option(
    "--data-dir",
    default="var",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the cluster; node k uses n<k> in it.",
)
@click.option(
    "--offset", default=0, show_default=True, type=click.IntRange(0, 40_000), help="Number to add to all ports."
)
@click.option("--respawn", is_flag=True, help="Restart a node that dies, instead of only reporting it.")
@click.option(
    "--event-journal",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory in which all nodes record what happens to messages. [default: LMQ_EVENT_JOURNAL, else none]",
)
@click.option(
    "--front-ends",
    default=0,
    show_default=True,
    type=click.IntRange(0, FRONT_ENDS_MAX),
    help="Front-end processes of each node.",
)
def dev(nodes: int, data_dir: Path, offset: int, respawn: bool, event_journal: Path | None, front_ends: int) -> int:
    """Run a cluster on this machine, in the foreground, for trying and developing.

    The first node listens on 127.0.0.1 at 9980 (HTTP), 18800 (MessagePack-RPC), 3333 (queued), 9324 (SQS), 22133
    (memcache), 2222 (text), 2229 (Thrift, if its library is installed) and 19980 (Raft); each further node uses ports
    higher by ten. Ctrl-C stops all nodes gracefully, a second Ctrl-C at once.

    \b
    Example:
      lmq dev --nodes 3 --data-dir ./var
    """
    never_wait_for_readers()
    settings = DevSettings(
        nodes=nodes,
        data_dir=data_dir,
        offset=offset,
        respawn=respawn,
        event_journal=event_journal,
        front_ends=front_ends,
    )
    return asyncio.run(DevCluster(settings).run())
