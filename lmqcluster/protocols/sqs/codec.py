"""The interface of the two forms of requests and answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..http.server.replies.common_replies import RETRY_AFTER
from ..http.server.replies.reply import Reply

if TYPE_CHECKING:
    from .errors import SqsError
    from .rendering import Output
    from .shapes import Parameters

__all__ = ["Codec"]


class Codec(ABC):
    """One form."""

    @abstractmethod
    def action(self) -> str:
        """Return the action, which must be known.

        Raises:
            SqsError: there is no such action.
        """

    @abstractmethod
    async def parameters(self) -> Parameters:
        """Return the parameters of the action.

        Raises:
            SqsError: one has the wrong form.
        """

    @abstractmethod
    async def answer(self, output: Output | None, request_id: str) -> Reply:
        """Return the answer to an action; `output` is None for an action without one."""

    @abstractmethod
    def refusal(self, error: SqsError, request_id: str) -> Reply:
        """Return the answer for an error."""


def head_of(content_type: bytes, request_id: str, more: Mapping[str, str] | None = None) -> bytes:
    """Return the header lines of an answer."""
    lines = b"content-type: %b\r\nx-amzn-RequestId: %b\r\n" % (content_type, request_id.encode("ascii"))
    if more is not None:
        for name, value in more.items():
            lines += f"{name}: {value}\r\n".encode("ascii")
    return lines


def refusal_of(error: SqsError, head: bytes, content: bytes) -> Reply:
    """Return the answer for an error in some form."""
    return Reply(error.status, head + (RETRY_AFTER if error.status == 503 else b""), content)
