"""``lmq start``: runs one node in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import click

from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.config.load import load_config
from lmqcluster.node.process.event_loop import loop_factory
from lmqcluster.node.process.logs import configure_logging
from lmqcluster.node.process.standard_output import never_wait_for_readers

from ..shared.data_folder import hold_data_dir
from .config import check_ports, config_options

__all__ = ["start"]


@click.command()
@config_options
@click.option("--stop-with-parent", is_flag=True, hidden=True, help="Stop when standard input ends.")
def start(config_file: Path | None, stop_with_parent: bool, **flags: str | None) -> int:
    """Run one node in the foreground.

    Each option can also be set in the environment and in a TOML file; a flag overrides the environment, which overrides
    the file. SIGTERM or Ctrl-C stops the node gracefully, a second Ctrl-C at once.

    \b
    Example:
      lmq start --name q1 --data-dir /var/lib/lmq --http 127.0.0.1:9980
    """
    never_wait_for_readers()
    config = load_config(flags, file=config_file)
    configure_logging(config.log_level, config.log_format)
    if stop_with_parent:
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    check_ports(config)
    with hold_data_dir(config.data_dir, "set a different one with --data-dir"):
        return _serve(config)


def _stop_at_end_of_input() -> None:
    # Unbuffered on purpose: a thread inside a buffered read would delay the exit of the interpreter.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(config: NodeConfig) -> int:
    from lmqcluster.server import serve  # noqa: PLC0415  imported here so that help is fast

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(serve(config))
