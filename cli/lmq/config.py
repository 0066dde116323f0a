"""``lmq config`` shows the configuration that a start would use; the options of a node as flags."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from lmqcluster.node.config.config import OPTIONS, NodeConfig, Option
from lmqcluster.node.config.kestrel import KESTREL_PORTS
from lmqcluster.node.config.load import load_config

from ..shared.aliases import AliasGroup
from ..shared.connection.reads import Report, print_report, view_options
from ..shared.data_folder import check_data_dir, check_folder
from ..shared.output import Column, Form, View
from .ports import check_free

__all__ = ["check_ports", "config", "config_options"]

_LINE_CHARACTERS_MAX: Final = 100
_RUNNING: Final = "pass --while-running"
_CONFIG_COLUMNS: Final = [Column("Option", "option"), Column("Value", "value"), Column("Origin", "origin")]


def config_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every option of a node, and ``--config``."""
    for option in reversed(OPTIONS):
        text = f"{option.help} [{option.environment}; default: {option.default}]"
        function = click.option(option.flag, option.name, metavar=option.metavar, help=text)(function)
    text = "TOML file with any of the options below, by name. [LMQ_CONFIG; default: none]"
    path = click.Path(dir_okay=False, path_type=Path)
    return click.option("--config", "config_file", metavar="FILE", type=path, help=text)(function)


def check_ports(config: NodeConfig, advice: str = "") -> None:
    """Check that the ports of a configuration are free.

    Args:
        advice: a further remedy.

    Raises:
        CliError: one of them cannot be bound.
    """
    for name in ("http", "rpc", "queued", "sqs", *KESTREL_PORTS, "raft"):
        address = getattr(config, name)
        if address is not None:
            check_free(address, name, f"choose another address with --{name}{advice}")


@click.group(cls=AliasGroup)
def config() -> None:
    """Show or check the configuration that a start would use."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Also show the source of each value.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@view_options(_CONFIG_COLUMNS)
@config_options
def config_show(config_file: Path | None, view: View, origin: bool, as_json: bool, **flags: str | None) -> None:
    """Print every option with its effective value. The cluster secret itself is not shown.

    \b
    Example:
      lmq config show --config /etc/lmq/lmq.toml
    """
    loaded = load_config(flags, file=config_file)
    rows = [(option.name, _format_value(loaded, option.name), loaded.origin(option.name)) for option in OPTIONS]
    count = 3 if origin else 2
    value = {name: {"value": value, "origin": source} for name, value, source in rows}
    report = Report(value, _CONFIG_COLUMNS[:count], [row[:count] for row in rows])
    print_report(report, replace(view, form=Form.JSON) if as_json else view)


@config.command("check", short_help="Check whether a node could start.")
@click.option("--while-running", is_flag=True, help="Skip the ports and the data directory, which a running node uses.")
@config_options
def config_check(config_file: Path | None, while_running: bool, **flags: str | None) -> None:
    """Exit with 0 if a node could start with this configuration; otherwise report the problem and exit with 78, or with
    69 if the problem is an address that is in use or that this machine does not have yet.

    Checks options, files, the data directory and the ports, and changes nothing. Pass --while-running to check before
    the restart of a running node.

    \b
    Example:
      lmq config check --config /etc/lmq/lmq.toml
    """
    loaded = load_config(flags, file=config_file)
    in_use = None if while_running else f"to check the configuration of a running node, {_RUNNING}"
    check_data_dir(loaded.data_dir, in_use)
    if loaded.event_journal is not None:
        check_folder(loaded.event_journal, "event journal")
    if not while_running:
        check_ports(loaded, f"; if the node itself runs there, {_RUNNING}")
    if sys.stdout.isatty():
        print("A node could start with this configuration.")


@config.command("docs")
def config_docs() -> None:
    """Print the reference of all options as Markdown, as in docs/configuration.md.

    \b
    Example:
      lmq config docs > configuration.md
    """
    print("\n".join(_section(option) for option in OPTIONS), end="")


def _section(option: Option) -> str:
    """Return the Markdown section of an option."""
    facts = (f"- Value: {option.metavar}; default: {option.default}", f"- At the extremes: {option.extremes}")
    text = "\n".join(_wrapped(fact, indent="  ") for fact in facts)
    return f"### {option.name}\n\n{_wrapped(option.help)}\n\n{text}\n"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, _LINE_CHARACTERS_MAX, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _format_value(loaded: NodeConfig, name: str) -> str:
    value = getattr(loaded, name)
    if name == "cluster_secret" and value is not None:
        return "(set)"
    if isinstance(value, tuple) and name == "peers":
        return ",".join(map(str, value)) or "none"
    if value is None:
        return "off" if name in ("http", "rpc", "raft", "event_journal") else "none"
    return str(value)
