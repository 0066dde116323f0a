"""URLs and ARNs of queues. The state holds names only, so both survive a change of node, host, account or region."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from aiohttp import hdrs

from ...node.queues.kinds import FIFO_NAME
from .errors import invalid_value, missing

if TYPE_CHECKING:
    from ...node.config.config import NodeConfig
    from ..http.server.requests.request import Request

__all__ = ["Names", "arn_name", "arn_queue", "is_creatable", "url_queue"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_SCOPE: Final = re.compile(r"Credential=[^/,\s]+/[0-9]{8}/([A-Za-z0-9-]{1,64})/")
_ARN_PARTS: Final = 6


class Names:
    """The form in which this node shows names of queues."""

    def __init__(self, config: NodeConfig, *, has_tls: bool) -> None:
        self._account = config.sqs_account
        self._region = config.sqs_region
        self._url = config.sqs_url
        self._scheme = "https" if has_tls else "http"
        self._own_host = "" if config.sqs is None else str(config.sqs)

    @property
    def account(self) -> str:
        """Return the account, twelve digits."""
        return self._account

    def url(self, request: Request, queue: bytes) -> str:
        """Return the URL of a queue for the client that sent a request."""
        host = request.headers.get(hdrs.HOST, "")
        origin = self._url or f"{self._scheme}://{host if _HOST.fullmatch(host) else self._own_host}"
        return f"{origin}/{self._account}/{quote(queue, safe='')}"

    def region(self, request: Request) -> str:
        """Return the region that a request names in its signature, by default the node's."""
        found = _SCOPE.search(request.headers.get(hdrs.AUTHORIZATION, ""))
        return self._region if found is None else found[1]

    def arn(self, request: Request, queue: bytes) -> str:
        """Return the ARN of a queue."""
        return f"arn:aws:sqs:{self.region(request)}:{self._account}:{_text(queue)}"


def _text(queue: bytes) -> str:
    try:
        return queue.decode()
    except UnicodeDecodeError:
        return quote(queue, safe="")


def url_queue(url: str | None) -> bytes:
    """Return the name of the queue that a URL, or a bare name, means.

    Raises:
        SqsError: ``MissingParameter``.
    """
    if not url:
        raise missing("QueueUrl")
    if "/" not in url:
        return url.encode("utf-8", "surrogatepass")
    path = url.partition("?")[0].partition("#")[0].rstrip("/")
    return unquote_to_bytes(path.rpartition("/")[2])


def arn_name(arn: str) -> bytes | None:
    """Return the name of the queue that an ARN means, None if it is no ARN of a queue."""
    parts = arn.split(":", _ARN_PARTS - 1)
    if len(parts) != _ARN_PARTS or parts[0] != "arn" or parts[2] != "sqs" or not parts[5]:
        return None
    return parts[5].encode("utf-8", "surrogatepass")


def arn_queue(arn: str, parameter: str) -> bytes:
    """Return the name of the queue that the ARN in a parameter means.

    Raises:
        SqsError: ``InvalidParameterValue``.
    """
    name = arn_name(arn)
    if name is None:
        form = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        raise invalid_value(f"You must use this format to specify the {parameter}: {form}")
    return name


def is_creatable(name: str, *, is_fifo: bool | None = None) -> bool:
    """Return whether ``CreateQueue`` takes a name, for a queue of this kind or, with None, of either kind."""
    takes_fifo, takes_standard = is_fifo is not False, is_fifo is not True
    return bool((takes_fifo and FIFO_NAME.fullmatch(name)) or (takes_standard and _NAME.fullmatch(name)))
