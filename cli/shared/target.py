"""What every command of ``lmq-admin`` shares: which node it talks to, and in what form it prints."""

from __future__ import annotations

import base64
import functools
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import click
from click.shell_completion import CompletionItem

from .api import Api
from .contexts import context_option
from .credentials import credential_options
from .errors import debug_option
from .node_address import NODE_DEFAULT, check_node, default_node
from .output import Form, View
from .shared_options import SharedOption

__all__ = ["Target", "complete_queue", "completes", "queue_text", "queue_value", "target_options"]

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
COMPLETION_TIMEOUT_S = 2.0
COMPLETIONS_MAX = 1000


class Target:
    """The node a command is for, and the form of its output.

    Attributes:
        given_node: its HTTP address if the command line says it.
        form: the form asked for, None for the one that suits where the output goes.
        json_here: whether ``--json`` stands behind the command itself, not before it.
        view: what of a table is wanted, for commands that have the node sort it.
    """

    def __init__(self, given_node: str | None, form: Form | None, *, json_here: bool = False) -> None:
        self.given_node = given_node
        self.form = form
        self.json_here = json_here
        self.view = View(form)

    @cached_property
    def node(self) -> str:
        """Its HTTP address.

        Raises: as `default_node`.
        """
        return self.given_node or default_node()

    @property
    def as_json(self) -> bool:
        """Whether the output is JSON."""
        return self.form is Form.JSON

    @property
    def api(self) -> Api:
        """The node's HTTP interface."""
        return Api(self.node)

    def rpc_addresses(self) -> list[str]:
        """MessagePack-RPC addresses of all nodes that the cluster can reach, this node's first.

        Raises:
            click.UsageError: no node has one.
        """
        cluster = self.api.get("/v1/cluster")
        nodes = sorted(cluster["nodes"], key=lambda node: node["id"] != cluster["self"])
        addresses = [node["rpc"] for node in nodes if node["rpc"] and node["state"] != "unreachable"]
        if not addresses:
            raise click.UsageError(f"{self.node} names no MessagePack-RPC address; give --nodes HOST:PORT,...")
        return addresses


def completes(names: Callable[[Api, str], Iterable[object]]) -> Completion:
    """What completes words by names that the node knows: nothing if the node does not answer at once.

    Args:
        names: asks the node for names, all or those that begin with what has been typed.
    """

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        contexts = (context, context.parent, context.parent.parent if context.parent is not None else None)
        node = next((str(c.params["node"]) for c in contexts if c is not None and c.params.get("node")), None)
        try:
            with context.scope(cleanup=False):
                found = list(names(Api(node or default_node(), timeout_s=COMPLETION_TIMEOUT_S), incomplete))
            return [CompletionItem(name) for name in found if isinstance(name, str) and name.startswith(incomplete)]
        except Exception:  # noqa: BLE001  whatever it is, the middle of a command line is no place to tell of it
            return []

    return complete


def _node_addresses(api: Api, _incomplete: str) -> list[object]:
    return [node["http"] for node in api.get("/v1/cluster")["nodes"]]


def target_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--node``, ``--context``, ``--json`` and ``--debug``, which may stand before and after the name of the command."""

    @click.option(
        "--node",
        cls=SharedOption,
        metavar="HOST:PORT",
        callback=check_node,
        shell_complete=completes(_node_addresses),
        help=f"HTTP address of the node, or its URL. [LMQ_NODE; default: {NODE_DEFAULT}]",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, the API's answer unchanged where there is one.")
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
    """A queue name from the API as text; one that is not UTF-8 is shown as its Base64 form."""
    return f"base64:{name['base64']}" if isinstance(name, dict) else str(name)


def queue_value(name: str) -> Any:
    """A queue name from the command line as the API takes it in a body."""
    # surrogateescape brings back the bytes of an argument that is not UTF-8.
    data = name.encode(errors="surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _queue_names(api: Api, incomplete: str) -> Iterator[object]:
    query = urllib.parse.urlencode({"name": incomplete, "limit": COMPLETIONS_MAX, "fields": ""})
    yield from (queue["name"] for queue in api.get(f"/v1/queues?{query}")["queues"])


complete_queue = completes(_queue_names)
