"""A node's HTTP address as users write it: ``HOST:PORT``, or a URL."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

import click

from lmqcluster.wire.address import Address

from .contexts import context_in_use, note_node
from .credentials import use_tls

__all__ = ["HTTP_PORT", "NODE_DEFAULT", "check_node", "default_node", "node_address"]

NODE_DEFAULT: Final = "127.0.0.1:9980"
HTTP_PORT: Final = 9980


def node_address(text: str) -> str:
    """Return ``HOST:PORT``, with the default port if the text has none; ``https://`` selects TLS. The path of a URL is ignored.

    Raises:
        ValueError: it is neither.
    """
    if "://" not in text:
        return str(Address.parse(f"{text}:{HTTP_PORT}" if _lacks_port(text) else text))
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"{text!r} is neither HOST:PORT nor an http or https URL")
    if parts.scheme == "https":
        use_tls()
    return str(Address(parts.hostname, parts.port or HTTP_PORT))


def _lacks_port(text: str) -> bool:
    # An IPv6 address with a port is in brackets.
    return text.endswith("]") if text.startswith("[") else ":" not in text and bool(text)


def check_node(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Validate the value of an option that takes a node's address."""
    if value is None:
        return None
    note_node(context)
    try:
        return node_address(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def default_node() -> str:
    """Return the node to use where no option names one: that of the context in use, else of the environment.

    Raises:
        CliError: the context cannot be used.
        click.UsageError: the environment variable is invalid.
    """
    used = context_in_use(click.get_current_context(silent=True))
    if used is not None:
        return used.node
    try:
        return node_address(os.environ.get("LMQ_NODE") or NODE_DEFAULT)
    except ValueError as exc:
        raise click.UsageError(f"environment variable LMQ_NODE: {exc}") from exc
