"""``lmq ping``: checks whether a node is alive."""

from __future__ import annotations

import click

from ..shared.connection.api import Api
from ..shared.connection.credentials import credential_options
from ..shared.connection.node_address import NODE_DEFAULT, check_node, default_node
from ..shared.errors import ExitCode

__all__ = ["ping"]


@click.command()
@click.option("--ready", is_flag=True, help="Require that the node is ready: it knows a leader and is not stopping.")
@click.option(
    "--node",
    metavar="HOST:PORT",
    callback=check_node,
    help=f"HTTP address of the node, or its URL. [LMQ_NODE; default: {NODE_DEFAULT}]",
)
@click.option("--timeout", default=5.0, show_default=True, help="Seconds to wait for the answer.")
@credential_options
def ping(node: str | None, timeout: float, ready: bool) -> int:
    """Print pong if the node is alive, whether or not it has a quorum.

    \b
    Example:
      lmq ping --node 10.0.0.1:9980 --ready
    """
    Api(node or default_node(), timeout_s=timeout).check_alive(ready=ready)
    print("pong")
    return ExitCode.DONE
