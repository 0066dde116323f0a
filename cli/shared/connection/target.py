"""Common parts of the commands of ``lmq-admin``: the node to connect to and the output format."""

from __future__ import annotations

import base64
import functools
import sys
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..errors import debug_option
from ..output import Form, View, print_json
from ..shared_options import SharedOption
from .api import Api
from .contexts import context_option
from .credentials import credential_options
from .node_address import NODE_DEFAULT, check_node, default_node

__all__ = ["Target", "complete_queue", "completes", "queue_text", "queue_value", "target_options"]

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
COMPLETION_TIMEOUT_S = 2.0
COMPLETIONS_MAX = 1000


class Target:
    """The node that a command talks to, and its output format.

    Attributes:
        given_node: its HTTP address if the command line names it.
        form: the format that was asked for; None for the one that suits the output.
        json_here: whether ``--json`` follows the command itself instead of preceding it.
        view: the table's view, for commands that let the node sort.
    """

    def __init__(self, given_node: str | None, form: Form | None, *, json_here: bool = False) -> None:
        self.given_node = given_node
        self.form = form
        self.json_here = json_here
        self.view = View(form)

    @cached_property
    def node(self) -> str:
        """Return its HTTP address.

        Raises: the errors of `default_node`.
        """
        return self.given_node or default_node()

    @property
    def as_json(self) -> bool:
        """Return whether the output is JSON."""
        return self.form is Form.JSON

    @property
    def api(self) -> Api:
        """Return the node's HTTP API."""
        return Api(self.node)

    def print_result(self, answer: Any, text: str) -> None:
        """Print the answer of a command that changed something: with ``--json`` itself, on a terminal as the text."""
        if self.as_json:
            print_json(answer)
        elif sys.stdout.isatty():
            print(text)

    def rpc_addresses(self) -> list[str]:
        """Return the MessagePack-RPC addresses of all reachable nodes, this node's first.

        Raises:
            click.UsageError: no node has one.
        """
        cluster = self.api.get("/v1/cluster")
        nodes = sorted(cluster["nodes"], key=lambda node: node["id"] != cluster["self"])
        addresses = [node["rpc"] for node in nodes if node["rpc"] and node["state"] != "unreachable"]
        if not addresses:
            raise click.UsageError(f"{self.node} reports no MessagePack-RPC address; pass --nodes HOST:PORT,...")
        return addresses


def completes(names: Callable[[Api, str], Iterable[object]]) -> Completion:
    """Return a completion function for names that the node knows; it completes nothing if the node does not answer at
    once.

    Args:
        names: requests names from the node: all, or those that begin with the typed text.
    """

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        contexts = (context, context.parent, context.parent.parent if context.parent is not None else None)
        node = next((str(c.params["node"]) for c in contexts if c is not None and c.params.get("node")), None)
        try:
            with context.scope(cleanup=False):
                found = list(names(Api(node or default_node(), timeout_s=COMPLETION_TIMEOUT_S), incomplete))
            return [CompletionItem(name) for name in found if isinstance(name, str) and name.startswith(incomplete)]
        except Exception:  # noqa: BLE001  an error message would disturb the command line being edited
            return []

    return complete


def _node_addresses(api: Api, _incomplete: str) -> list[object]:
    return [node["http"] for node in api.get("/v1/cluster")["nodes"]]


def target_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--node``, ``--context``, ``--json`` and ``--debug``, which may be given before and after the name of the
    command.
    """

    @click.option(
        "--node",
        cls=SharedOption,
        metavar="HOST:PORT",
        callback=check_node,
        shell_complete=completes(_node_addresses),
        help=f"HTTP address of the node, or its URL. [LMQ_NODE; default: {NODE_DEFAULT}]",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON: the API's answer, unchanged where there is one.")
    @context_option
    @credential_options
    @debug_option
    @functools.wraps(function)
    def wrapper(node: str | None, as_json: bool, **arguments: Any) -> Any:
        context = click.get_current_context()
        outer = context.find_object(Target)
        context.obj = Target(
            node or (outer.given_node if outer is not None else None),
            Form.JSON if as_json else outer.form if outer is not None else None,
            json_here=as_json,
        )
        return function(context.obj, **arguments)

    return wrapper


def queue_text(name: object) -> str:
    """Return a queue name from the API as text; one that is not UTF-8 in Base64."""
    return f"base64:{name['base64']}" if isinstance(name, dict) else str(name)


def queue_value(name: str) -> Any:
    """Return a queue name from the command line in the form of an API body."""
    # surrogateescape restores the bytes of an argument that is not UTF-8.
    data = name.encode(errors="surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _queue_names(api: Api, incomplete: str) -> Iterator[object]:
    query = urllib.parse.urlencode({"name": incomplete, "limit": COMPLETIONS_MAX, "fields": ""})
    yield from (queue["name"] for queue in api.get(f"/v1/queues?{query}")["queues"])


complete_queue = completes(_queue_names)
