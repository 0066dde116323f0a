"""``lmq-admin log-level``: the log level of one node."""

from __future__ import annotations

import click

from lmqcluster.node.config.config import LOG_LEVELS

from ...shared.connection.target import Target, target_options
from ...shared.output import print_json

__all__ = ["log_level"]


@click.command("log-level", short_help="Show or change the log level of the node.")
@click.argument("level", type=click.Choice(LOG_LEVELS), required=False)
@target_options
def log_level(target: Target, level: str | None) -> None:
    """Show the lowest LEVEL that the node logs, or change it until the node stops.

    \b
    Example:
      lmq-admin --node 10.0.0.1:9980 log-level debug
    """
    api = target.api
    found = api.get("/v1/log-level") if level is None else api.put("/v1/log-level", {"level": level})
    if target.as_json:
        print_json(found)
    else:
        print(found["level"])
