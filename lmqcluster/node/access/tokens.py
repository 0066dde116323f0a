"""Creation, listing and deletion of tokens."""

from __future__ import annotations

import base64
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core import EVERY_QUEUE, Role, TokenResult
from ...core.log.commands import DeleteToken, SetToken
from ...core.owners.tokens import NAME_BYTES_MAX, PRINCIPALS_MAX, TOKENS_MAX
from ...wire.errors import LmqError
from ..queues.patterns.patterns import check_pattern
from . import raft_port
from .access import ADMIN_FILE_NAME, digest_of, time_of_day_us
from .sqs_keys import sqs_key

if TYPE_CHECKING:
    from ..node import Node

__all__ = ["ROLES", "TokenInfo", "create_token", "delete_token", "list_tokens"]

SECRET_PREFIX = "lmq_"  # noqa: S105 - by which scanners for leaked secrets know it
LIFETIME_S_MAX = 100 * 365 * 86_400
ROLES = {role.name.lower(): role for role in Role}
_NAME = re.compile(rb"[^\x00-\x20\x7f/]+")
_ACCESS_KEY_ID = re.compile(rb"[A-Za-z0-9_.@+-]+")
"""Names that AWS's clients can send in a header and read from their files."""


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """One token, without its secret.

    Attributes:
        role: read, write or admin.
        queues: the pattern.
        principal: the owner of the state that its clients leave in the cluster; tokens may share a principal.
        created_at, expires_at: seconds since 1970; None for never.
        sqs: whether it is for the SQS port too.
    """

    name: str
    role: str
    queues: str
    principal: str
    created_at: float
    expires_at: float | None
    expired: bool
    sqs: bool


async def create_token(
    node: Node,
    name: str,
    role: str,
    queues: str,
    lifetime_s: float | None,
    principal: str | None = None,
    *,
    sqs: bool = False,
) -> str:
    """Create a token and return its secret, which is stored nowhere.

    Args:
        node: the node that proposes the command.
        name: the unique name of the token.
        role: read, write or admin.
        queues: regular expression to search for in queue names.
        lifetime_s: seconds until it expires, None for never.
        principal: the owner, new or not, of the state that its clients leave in the cluster; None for a new one with the
            token's name.
        sqs: whether the token is for the SQS port too; the cluster then keeps the `sqs_key` of its secret.

    Raises:
        LmqError: ``bad_request``, ``bad_pattern``; ``conflict`` if the name is taken, if the principal of that name is not new,
            if no token could create a second one, or if the nodes have no secret; ``overloaded`` if there are too many.
    """
    encoded = _checked("token", name)
    owner = b"" if principal is None else _checked("principal", principal)
    if not owner and name == ADMIN_FILE_NAME:
        raise LmqError("bad_request", f"a token of the name {name!r} needs a principal: the file of that name has it")
    if sqs and not _ACCESS_KEY_ID.fullmatch(encoded):
        text = "the name of a token for the SQS port consists of A-Z, a-z, 0-9 and any of _.@+-, because it is an access key ID"
        raise LmqError("bad_request", text)
    if role not in ROLES:
        raise LmqError("bad_request", f"a role is one of {', '.join(ROLES)}, not {role!r}")
    pattern = queues.encode("utf-8", "surrogateescape") or EVERY_QUEUE
    check_pattern(pattern)
    if lifetime_s is not None and not 1 <= lifetime_s <= LIFETIME_S_MAX:
        raise LmqError("bad_request", f"a lifetime is 1 to {LIFETIME_S_MAX} seconds, not {lifetime_s}")
    raft_port.allow_tokens(node.security, node.replica.status().members)
    secret = SECRET_PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    lifetime_us = 0 if lifetime_s is None else int(lifetime_s * 1_000_000)
    digest, key = digest_of(secret.encode()), sqs_key(secret.encode()) if sqs else b""
    # Log time stops while the cluster is down, and restarts from the time of a backup, so expiry uses the time of day.
    now_us, has_file = time_of_day_us(), node.access.has_admin_file
    command = SetToken(encoded, digest, int(ROLES[role]), pattern, lifetime_us, has_file, now_us, owner, key)
    result = await node.service.sender.propose(command, 384 + len(pattern))
    if result != TokenResult.DONE:
        raise _refusal(TokenResult(result), name)
    return secret


def _refusal(result: TokenResult, name: str) -> LmqError:
    if result == TokenResult.EXISTS:
        return LmqError("conflict", f"there is a token {name!r} already; delete it first", retryable=False)
    if result == TokenResult.TAKEN:
        text = (
            f"a principal {name!r} has tokens already, or owns what a former token has left; name it as the principal of the new "
            f"token (--principal {name}) to share that, or choose another name"
        )
        return LmqError("conflict", text, retryable=False)
    if result == TokenResult.FULL:
        return LmqError("overloaded", f"there are {TOKENS_MAX} tokens, the limit; delete some", retryable=False)
    if result == TokenResult.CROWDED:
        text = (
            f"{PRINCIPALS_MAX} principals own something, the limit; name one of them, or delete what those without a token have "
            "left: lmq-admin subscription rm, job rm, session end, queue rm"
        )
        return LmqError("overloaded", text, retryable=False)
    text = "the first token must have the role admin, be for all queues and not expire; otherwise no client could create another"
    return LmqError("conflict", text, retryable=False)


async def delete_token(node: Node, name: str) -> None:
    """Delete a token; its clients are refused from then on. The state that they left belongs to its principal and stays.

    Raises:
        LmqError: ``token_not_found``, ``conflict`` if no remaining token could manage the others.
    """
    command = DeleteToken(_checked("token", name), node.access.has_admin_file)
    result = await node.service.sender.propose(command, 128)
    if result == TokenResult.UNKNOWN:
        raise LmqError("token_not_found", f"there is no token {name!r}")
    if result == TokenResult.NO_ADMIN:
        text = f"token {name!r} is the last that manages the others; make another one, or delete the others first"
        raise LmqError("conflict", text, retryable=False)


async def list_tokens(node: Node) -> list[TokenInfo]:
    """Return all tokens by name."""
    await node.service.sender.barrier()
    now_us = time_of_day_us()
    return [
        TokenInfo(
            name=token.name.decode("utf-8", "backslashreplace"),
            role=token.role.name.lower(),
            queues=token.pattern.decode("utf-8", "backslashreplace"),
            principal=token.principal.decode("utf-8", "backslashreplace"),
            created_at=token.created_us / 1e6,
            expires_at=token.expires_us / 1e6 if token.expires_us else None,
            expired=bool(token.expires_us) and token.expires_us <= now_us,
            sqs=bool(token.sqs_key),
        )
        for token in node.service.sender.state().tokens
    ]


def _checked(kind: str, name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > NAME_BYTES_MAX or not _NAME.fullmatch(encoded):
        text = f"a {kind}'s name has 1 to {NAME_BYTES_MAX} bytes, none of them a space, a slash or a control character"
        raise LmqError("bad_request", text)
    return encoded
