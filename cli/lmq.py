"""The program ``lmq``: run a node, run a cluster on this machine, ask whether a node is there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click

from lmqcluster.node.config import OPTIONS, NodeConfig
from lmqcluster.node.config_load import load_config
from lmqcluster.node.logs import configure_logging
from lmqcluster.replication import offline, salvage
from lmqcluster.replication.storage.disk import DamagedFileError

from .admin_backup import data_dir_option, disks_of, told
from .aliases import AliasGroup
from .api import Api
from .completion import completion_command
from .confirm import agreed, yes_option
from .credentials import credential_options
from .data_dir import check_data_dir, check_folder, hold_data_dir
from .dev import DevCluster, DevSettings
from .errors import EXIT_CODES_HELP, CliError, ExitCode, run
from .node_address import NODE_DEFAULT, check_node, default_node
from .output import Column, Form, View
from .ports import check_free
from .reads import Report, print_report, view_options

__all__ = ["main"]

_CONFIG_COLUMNS: Final = [Column("Option", "option"), Column("Value", "value"), Column("Origin", "origin")]


@click.group(cls=AliasGroup, epilog=EXIT_CODES_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("lmqcluster"), package_name="lmqcluster", message="lmqcluster %(version)s")
def cli() -> None:
    """Run lmqcluster, a replicated message queue."""


def config_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every option of a node, and ``--config``."""
    for option in reversed(OPTIONS):
        text = f"{option.help} [{option.environment}; default: {option.default}]"
        function = click.option(option.flag, option.name, metavar=option.metavar, help=text)(function)
    text = "TOML file with any of the options below, by name. [LMQ_CONFIG; default: none]"
    path = click.Path(dir_okay=False, path_type=Path)
    return click.option("--config", "config_file", metavar="FILE", type=path, help=text)(function)


@cli.command()
@config_options
@click.option("--stop-with-parent", is_flag=True, hidden=True, help="Stop when standard input ends.")
def start(config_file: Path | None, stop_with_parent: bool, **flags: str | None) -> int:
    """Run one node in the foreground.

    Each option can also come from the environment and from a TOML file; a flag beats the environment, which beats the
    file. SIGTERM or Ctrl-C stops the node in order, a second Ctrl-C at once.
    """
    config = load_config(flags, file=config_file)
    configure_logging(config.log_level, config.log_format)
    if stop_with_parent:
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    _check_ports(config)
    with hold_data_dir(config.data_dir):
        return _serve(config)


def _check_ports(config: NodeConfig) -> None:
    for name, address in (("http", config.http), ("rpc", config.rpc), ("raft", config.raft)):
        if address is not None:
            check_free(address, name, f"choose another address with --{name}")


def _stop_at_end_of_input() -> None:
    # Unbuffered on purpose: a thread inside a buffered read would hold up the end of the interpreter.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(config: NodeConfig) -> int:
    from lmqcluster.server import serve  # noqa: PLC0415  the other commands need not wait for these imports

    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    else:
        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(serve(config))


@cli.command(short_help="Run a cluster on this machine, for trying.")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 9), help="Count of nodes.")
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
@click.option("--respawn", is_flag=True, help="Start a node that died again, instead of only reporting it.")
@click.option(
    "--event-journal",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory in which all nodes write what happens to messages. [default: LMQ_EVENT_JOURNAL, else none]",
)
def dev(nodes: int, data_dir: Path, offset: int, respawn: bool, event_journal: Path | None) -> int:
    """Run a cluster on this machine, in the foreground, for trying and developing.

    The first node listens on 127.0.0.1 at 9980 (HTTP), 18800 (MessagePack-RPC) and 19980 (Raft), each further one ten
    ports higher. Ctrl-C stops all nodes in order, a second Ctrl-C at once.
    """
    settings = DevSettings(nodes=nodes, data_dir=data_dir, offset=offset, respawn=respawn, event_journal=event_journal)
    return asyncio.run(DevCluster(settings).run())


@cli.command()
@click.option("--ready", is_flag=True, help="Only if it can also serve: it knows a leader and is not stopping.")
@click.option(
    "--node",
    metavar="HOST:PORT",
    callback=check_node,
    help=f"HTTP address of the node, or its URL. [LMQ_NODE; default: {NODE_DEFAULT}]",
)
@click.option("--timeout", default=5.0, show_default=True, help="Seconds to wait for the answer.")
@credential_options
def ping(node: str | None, timeout: float, ready: bool) -> int:
    """Print pong if the node is alive, whether or not it has a quorum."""
    Api(node or default_node(), timeout_s=timeout).check_alive(ready=ready)
    print("pong")
    return ExitCode.DONE


@cli.command(short_help="Throw away the damaged data of a stopped node.")
@data_dir_option
@click.option(
    "--alone",
    is_flag=True,
    help="The node is its whole cluster: keep what can be read before the damage, lose the rest.",
)
@yes_option
def repair(data_dir: Path, alone: bool, yes: bool) -> None:
    """Throw away the log and snapshots of a stopped node whose files are damaged.

    The node keeps its identity. When it is started again, it takes no part in votes until it has everything from the other
    nodes, so use this only while a majority of them is well.

    A node that is alone has nobody to get anything from, and is refused. Restore a backup, or cut its log before the damage with
    --alone: what was acknowledged behind it is lost.
    """
    if not data_dir.is_dir():
        raise CliError(f"there is no data folder {data_dir}", ExitCode.CONFIGURATION)
    if alone:
        _repair_alone(data_dir, yes=yes)
        return
    with told():
        _refuse_if_alone(data_dir)
    agreed(f"throw away what {data_dir} holds, and get it from the other nodes", yes=yes)
    with told(), hold_data_dir(data_dir):
        meta = offline.discard_data(disks_of(data_dir))
    if meta is None:
        print(
            "The node's identity could not be read and is given up too. Start it with the peers that it was founded with and it"
            " comes back by itself; if it had joined, remove it from its cluster (lmq-admin remove) and let it join again.",
            file=sys.stderr,
        )


def _repair_alone(data_dir: Path, *, yes: bool) -> None:
    agreed(f"cut the log in {data_dir} before its first damage and lose what was acknowledged behind it", yes=yes)
    with told(), hold_data_dir(data_dir):
        left = salvage.salvage(disks_of(data_dir))
    print(f"The node keeps its log up to entry {left.last_index:,}; what was behind it is lost.", file=sys.stderr)


def _refuse_if_alone(data_dir: Path) -> None:
    # While a node runs, its files change under whoever reads them.
    check_data_dir(data_dir, in_use_ok=False)
    try:
        alone = salvage.is_alone(disks_of(data_dir))
    except DamagedFileError:
        # Whose folder it is cannot be told, which the repair says.
        return
    if alone:
        text = (
            f"the node of {data_dir} is alone, so nobody could give anything back to it: restore a backup into an empty folder"
            " (lmq-admin restore), or keep what can be read before the damage (lmq repair --alone)"
        )
        raise CliError(text, ExitCode.BAD_DATA)


@cli.group(cls=AliasGroup)
def config() -> None:
    """Show or check the configuration that a start would use."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@view_options(_CONFIG_COLUMNS)
@config_options
def config_show(config_file: Path | None, view: View, origin: bool, as_json: bool, **flags: str | None) -> None:
    """Print every option with its effective value. The cluster secret itself is not shown."""
    loaded = load_config(flags, file=config_file)
    rows = [(option.name, _shown(loaded, option.name), loaded.origin(option.name)) for option in OPTIONS]
    count = 3 if origin else 2
    value = {name: {"value": value, "origin": source} for name, value, source in rows}
    report = Report(value, _CONFIG_COLUMNS[:count], [row[:count] for row in rows])
    print_report(report, replace(view, form=Form.JSON) if as_json else view)


@config.command("check", short_help="Say whether a node could start.")
@click.option(
    "--while-running", is_flag=True, help="Do not look at what a running node uses: its ports, its data folder."
)
@config_options
def config_check(config_file: Path | None, while_running: bool, **flags: str | None) -> None:
    """Exit with 0 if a node could start with this configuration, else say what is wrong and exit with 78.

    Options, files, the data folder and the ports are looked at; nothing is made or changed. Before a restart of a node that runs
    say --while-running.
    """
    loaded = load_config(flags, file=config_file)
    check_data_dir(loaded.data_dir, in_use_ok=while_running)
    if loaded.event_journal is not None:
        check_folder(loaded.event_journal, "event journal")
    if not while_running:
        _check_ports(loaded)
    if sys.stdout.isatty():
        print("A node could start with this configuration.")


@config.command("docs")
def config_docs() -> None:
    """Print the reference of all options as Markdown; the README's table is this."""
    print("| Option | Default | Meaning | At the extremes |\n|---|---|---|---|")
    for option in OPTIONS:
        print(f"| `{option.name}` {option.metavar} | {option.default} | {option.help} | {option.extremes} |")


cli.add_command(completion_command(cli, "lmq", "commands and options"))


def _shown(loaded: NodeConfig, name: str) -> str:
    value = getattr(loaded, name)
    if name == "cluster_secret" and value is not None:
        return "(set)"
    if isinstance(value, tuple) and name == "peers":
        return ",".join(map(str, value)) or "none"
    if value is None:
        return "off" if name in ("http", "rpc", "raft", "event_journal") else "none"
    return str(value)


def main() -> None:
    """Entry point of the script."""
    run(cli, "lmq")


if __name__ == "__main__":
    main()
