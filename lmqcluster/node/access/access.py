"""Authentication and permissions on the client ports.

While the cluster has no tokens and the node has no admin token file, clients on the node's own machine may do everything and
others nothing. After the first token is created, every client needs one. Protocols authenticate a secret as a `Principal` and
check permissions with it.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from ...core import EVERY_QUEUE, ApiKeys, Role, Token, Tokens
from ...core.owners.owner_table import is_random
from ...ports import ConnectionSlot
from ...replication.storage.io.disk import Disk
from ...wire.errors import LmqError
from ..queues.patterns.patterns import compile_pattern
from .permissions import Permission, Scope
from .sqs_keys import secret_access_key

__all__ = [
    "SECRET_BYTES_MIN",
    "UNKNOWN_CLIENT",
    "Access",
    "KeyHolder",
    "Principal",
    "digest_of",
    "read_admin_token",
    "time_of_day_us",
]

log = structlog.get_logger("lmq.access")

SECRET_BYTES_MIN = 16
ADMIN_FILE_NAME = "admin_token_file"
_MARK = "guarded"
"""A file of this name in the data directory marks that the cluster had tokens when the node last knew its state."""
_NAMES_MAX = 10_000
_REVOKED = 0
_WHOLE = frozenset({b"", EVERY_QUEUE})
_GONE = (None, None)


class Principal:
    """An authenticated client and its permissions.

    Attributes:
        name: the name of the token.
        owner: the principal of the token, which owns the state that the cluster keeps for the client; empty for clients that
            need no token.
        role: a `Role`, or 0 after the token is revoked.
        everywhere: whether the pattern matches all queues.
        is_root: whether the client may do everything.
    """

    __slots__ = ("_known", "_matches", "everywhere", "is_root", "name", "owner", "pattern", "role")

    def __init__(self, name: str, role: Role, pattern: bytes, owner: bytes = b"") -> None:
        self.name = name
        self.owner = owner
        self.role: int = role
        self.pattern = pattern
        self.everywhere = pattern in _WHOLE
        self.is_root = self.everywhere and role == Role.ADMIN
        self._matches = compile_pattern(pattern)
        self._known: dict[bytes, bool] = {}

    def allows(self, role: Role, queue: bytes) -> bool:
        """Return whether the client has the role on a queue."""
        return role <= self.role and (self.everywhere or self.covers(queue))

    def allows_role(self, role: Role) -> bool:
        """Return whether the client's role includes another role."""
        return role <= self.role

    def covers(self, queue: bytes) -> bool:
        """Return whether the pattern matches a queue's name."""
        known = self._known.get(queue)
        if known is None:
            if len(self._known) >= _NAMES_MAX:
                self._known.clear()
            known = self._known[queue] = self._matches(queue)
        return known

    def require(self, role: Role, queue: bytes) -> None:
        """Require a role on a queue.

        Raises:
            LmqError: ``forbidden``, or ``unauthorized`` if the token was revoked.
        """
        self.require_role(role)
        if not (self.everywhere or self.covers(queue)):
            shown = queue[:80].decode("utf-8", "backslashreplace")
            raise LmqError("forbidden", f"token {self.name!r} covers {self._queues()}, not {shown!r}")

    def require_pattern(self, role: Role, pattern: bytes) -> None:
        """Require a role on the queues that a regular expression matches.

        The expression must equal the token's, because inclusion of one expression in another is not decidable in general.

        Raises: as `require`.
        """
        self.require_role(role)
        if not (self.everywhere or pattern == self.pattern):
            text = f"token {self.name!r} covers {self._queues()}: use exactly this regular expression, or another token"
            raise LmqError("forbidden", text)

    def require_subscription(self, role: Role, name: bytes) -> None:
        """Require a role on a subscription, whose name must match the pattern like the name of a queue.

        A name that ends with a random UUID, as Spark creates them, is open to any client that knows it.

        Raises: as `require`.
        """
        self.require_role(role)
        if not is_random(name):
            self.require(role, name)

    def require_all(self, role: Role) -> None:
        """Require a role on the whole cluster. Raises as `require`."""
        self.require_role(role)
        if not self.everywhere:
            text = f"token {self.name!r} covers {self._queues()} only; this needs one for all queues"
            raise LmqError("forbidden", text)

    def require_role(self, role: Role) -> None:
        """Require a role, on any queue. Raises as `require`."""
        if role <= self.role:
            return
        if self.role == _REVOKED:
            raise LmqError("unauthorized", f"token {self.name!r} was deleted or has expired")
        own, needed = Role(self.role).name.lower(), role.name.lower()
        raise LmqError("forbidden", f"token {self.name!r} has the role {own}; this needs {needed}")

    def demand(self, need: Permission, subject: bytes) -> None:
        """Require a permission on its subject: a queue, a subscription or the pattern of queues, depending on the scope.

        Raises: as `require`.
        """
        role, scope = need
        if scope is Scope.QUEUE:
            self.require(role, subject)
        elif scope is Scope.SUBSCRIPTION:
            self.require_subscription(role, subject)
        elif scope is Scope.PATTERN:
            self.require_pattern(role, subject)
        elif scope is Scope.CLUSTER:
            self.require_all(role)
        elif scope is Scope.ANYTHING:
            self.require_role(role)

    def revoke(self) -> None:
        """Revoke all permissions."""
        self.role = _REVOKED
        self.is_root = False

    @property
    def ends_of(self) -> bytes:
        """Return the owner whose subscriptions the client may end; empty for all owners."""
        return b"" if self.is_root else self.owner

    @property
    def is_revoked(self) -> bool:
        """Return whether the token was revoked or has expired."""
        return self.role == _REVOKED

    def _queues(self) -> str:
        return f"queues that match {self.pattern.decode('utf-8', 'backslashreplace')!r}"


class KeyHolder(Principal):
    """A client with an API key, which has all permissions on the messages and limits of some queues and no others.

    Attributes:
        prefix: the prefix of the names of these queues.
    """

    __slots__ = ("prefix",)

    def __init__(self, prefix: bytes) -> None:
        super().__init__("API key", Role.ADMIN, b"^")
        self.prefix = prefix

    def covers(self, queue: bytes) -> bool:
        """Return whether a queue's name begins with the prefix."""
        return queue.startswith(self.prefix)


UNKNOWN_CLIENT = Principal("unknown", Role.READ, EVERY_QUEUE)
"""An unknown client without permissions."""
UNKNOWN_CLIENT.revoke()


class Access:
    """The tokens and API keys that this node knows.

    Attributes:
        anonymous: the principal of clients on this machine that present no token; None if every client needs one.
        outside: the error for all clients while the node belongs to no cluster.
        revision: the last seen revisions of the cluster's tokens and API keys.
        on_change: callbacks for revoked principals and for a change of `anonymous`.
    """

    def __init__(self, admin_token: bytes | None) -> None:
        self.anonymous: Principal | None = None
        self.outside: LmqError | None = None
        self.revision = (-1, -1)
        self.on_change: list[Callable[[], None]] = []
        self._disk: Disk | None = None
        self._marked = False
        self._uncertain = False
        self._principals: dict[bytes, tuple[Token, Principal]] = {}
        self._signers: dict[str, tuple[str, Principal]] = {}
        self._api_keys = ApiKeys()
        self._key_holders: dict[bytes, KeyHolder] = {}
        self._next_expiry_us = 0
        self._closed = False
        self._admin: Principal | None = None
        self._admin_digest = b""
        self._set_admin(admin_token)

    # --- knowing --------------------------------------------------------------------------------------------------

    def open(self, disk: Disk) -> None:
        """Load the mark that tokens exist from the data directory, and keep it there from now on.

        Raises:
            OSError: the data directory cannot be read.
        """
        self._disk = disk
        self._marked = self._uncertain = _MARK in disk.names()

    @property
    def is_uncertain(self) -> bool:
        """Return whether the cluster may have tokens that this node does not know yet; until `settle` every client needs one."""
        return self._uncertain

    def distrust(self) -> None:
        """Require tokens of all clients, because the node is about to receive unknown tokens."""
        self._uncertain = True
        self._revise()

    def settle(self) -> None:
        """End the uncertainty, because this node has applied everything that the cluster had committed."""
        if self._uncertain:
            self._uncertain = False
            self._mark()
            self._revise()

    def forget(self) -> None:
        """End the uncertainty, because the node has left its cluster."""
        self._uncertain = False

    def exclude(self, reason: LmqError | None) -> None:
        """Refuse all clients with `reason` while the node belongs to no cluster; None if it belongs to one again."""
        if reason is not self.outside:
            self.outside = reason
            self._revise(changed=True)

    def follow(self, tokens: Tokens, api_keys: ApiKeys, now_us: int) -> None:
        """Take over the API keys and unexpired tokens of the replicated state."""
        self.revision = (tokens.revision, api_keys.revision)
        gone = [*self._follow_tokens(tokens, now_us), *self._follow_keys(api_keys)]
        for principal in gone:
            principal.revoke()
            log.info("token revoked", name=principal.name)
        self._closed = len(tokens) > 0
        if self._closed:
            self._uncertain = False
        self._mark()
        self._revise(changed=bool(gone))

    def _follow_keys(self, api_keys: ApiKeys) -> list[KeyHolder]:
        """Return the holders of API keys that are no longer valid."""
        self._api_keys = api_keys
        gone = {
            digest: holder for digest, holder in self._key_holders.items() if api_keys.prefix(digest) != holder.prefix
        }
        for digest in gone:
            del self._key_holders[digest]
        return list(gone.values())

    def _follow_tokens(self, tokens: Tokens, now_us: int) -> list[Principal]:
        """Return the principals whose tokens are no longer valid."""
        former = self._principals
        self._principals = {}
        self._signers = {}
        self._next_expiry_us = 0
        for token in tokens:
            if token.expires_us and token.expires_us <= now_us:
                continue
            if token.expires_us:
                self._next_expiry_us = min(self._next_expiry_us or token.expires_us, token.expires_us)
            known = former.get(token.digest)
            if known is None or known[0] != token:
                name = token.name.decode("utf-8", "backslashreplace")
                known = (token, Principal(name, token.role, token.pattern, token.principal))
            self._principals[token.digest] = known
            if token.sqs_key:
                self._signers[known[1].name] = secret_access_key(token.sqs_key), known[1]
        return [
            principal
            for digest, (_, principal) in former.items()
            if self._principals.get(digest, _GONE)[1] is not principal
        ]

    def expire(self, tokens: Tokens, now_us: int) -> None:
        """Revoke the tokens that have expired at this time of day."""
        if self._next_expiry_us and self._next_expiry_us <= now_us:
            self.follow(tokens, self._api_keys, now_us)

    def set_admin_token(self, secret: bytes | None) -> None:
        """Replace the secret of ``admin_token_file``; None if there is no such file."""
        self._set_admin(secret)
        self._revise(changed=True)

    # --- asking ---------------------------------------------------------------------------------------------------

    def authenticate(self, secret: bytes, place: ConnectionSlot, *, takes_keys: bool = False) -> Principal:
        """Return the principal of a secret that a connection presents; with `takes_keys` it may be an API key.

        Raises:
            LmqError: ``unauthorized`` if the secret is unknown; ``throttled`` if too many wrong ones came from that address;
                ``no_leader`` if this node does not know the tokens yet.
        """
        digest = digest_of(secret)
        # The lookup of a digest reveals nothing about the secret by its duration.
        found = self._principals.get(digest)
        if found is not None and hmac.compare_digest(digest, found[0].digest):
            return found[1]
        # Tokens have random secrets that cannot be guessed; secrets chosen by people can, so wrong ones are throttled.
        client, now_s = place.client, time.monotonic()
        is_new = digest not in (place.verified_digest, client.last_wrong)
        if is_new and client.wrong_secrets.wait_s(now_s):
            raise LmqError(
                "throttled", "too many wrong tokens or API keys came from this address; try again in a second"
            )
        chosen = self._chosen(digest, takes_keys=takes_keys)
        if chosen is None:
            refusal = self.refusal("the token is not known here: it is wrong, was deleted or has expired")
            if is_new and refusal.code == "unauthorized":
                client.wrong_secrets.take(now_s)
                client.last_wrong = digest
            raise refusal.again()
        place.verified_digest = digest
        return chosen

    def _chosen(self, digest: bytes, *, takes_keys: bool) -> Principal | None:
        """Return the principal of an admin token or API key, whose secrets people choose."""
        if self._admin is not None and hmac.compare_digest(digest, self._admin_digest):
            return self._admin
        prefix = self._api_keys.prefix(digest) if takes_keys else None
        if prefix is None:
            return None
        holder = self._key_holders.get(digest)
        if holder is None:
            holder = self._key_holders[digest] = KeyHolder(prefix)
        return holder

    def signer(self, access_key_id: str) -> tuple[str, Principal] | None:
        """Return the secret access key of a client that signs requests, and its principal; None if it is unknown."""
        return self._signers.get(access_key_id)

    def named(self, name: str) -> Principal | None:
        """Return the principal of the token with this name; None if there is no such token or it has expired."""
        return next((one for _, one in self._principals.values() if one.name == name), None)

    def refusal(self, reason: str | None = None) -> LmqError:
        """Return the error for an unknown principal."""
        if self.outside is not None:
            return self.outside.again()
        if self._uncertain:
            return LmqError("no_leader", "this node has not heard yet which tokens the cluster has")
        if self._closed or self._admin is not None:
            return LmqError(
                "unauthorized", reason or "a token is needed; the administrators of the cluster give them out"
            )
        text = (
            "no tokens have been made yet, so only clients on a node's own machine are served; there, make the first one with"
            " lmq-admin token create NAME --role admin, or start the node with admin_token_file"
        )
        return LmqError("unauthorized", text)

    @property
    def has_admin_file(self) -> bool:
        """Return whether this node has an admin token file, whose holder can create and delete any token."""
        return self._admin is not None

    # --- inside ---------------------------------------------------------------------------------------------------

    def _set_admin(self, secret: bytes | None) -> None:
        digest = b"" if secret is None else digest_of(secret)
        if digest == self._admin_digest:
            return
        if self._admin is not None:
            self._admin.revoke()
        self._admin = (
            None if secret is None else Principal(ADMIN_FILE_NAME, Role.ADMIN, EVERY_QUEUE, ADMIN_FILE_NAME.encode())
        )
        self._admin_digest = digest

    def _revise(self, *, changed: bool = False) -> None:
        is_open = not (self._closed or self._uncertain or self._admin is not None)
        if is_open and self.anonymous is None:
            self.anonymous = Principal("local", Role.ADMIN, EVERY_QUEUE)
            changed = True
        elif not is_open and self.anonymous is not None:
            self.anonymous.revoke()
            self.anonymous = None
            changed = True
        if changed:
            for call in self.on_change:
                call()

    def _mark(self) -> None:
        """Update the mark. A restarted node needs it, because it does not know the end of its log before it hears from others."""
        guarded = self._closed or self._uncertain
        if self._disk is None or guarded == self._marked:
            return
        try:
            if guarded:
                self._disk.create(_MARK).close()
            else:
                self._disk.remove(_MARK)
            self._disk.sync()
        except OSError as exc:
            log.warning("cannot record whether tokens exist", path=self._disk.path(_MARK), reason=str(exc))
        else:
            self._marked = guarded


def time_of_day_us() -> int:
    """Return the node's clock, by which tokens expire, in microseconds since 1970."""
    return time.time_ns() // 1000


def digest_of(secret: bytes) -> bytes:
    """Return the digest of a secret, which is stored in its place."""
    return hashlib.sha256(secret).digest()


def read_admin_token(path: Path) -> bytes:
    """Return the secret in a file, without surrounding white space.

    Raises:
        OSError: the file cannot be read.
        ValueError: the secret has fewer than 16 bytes.
    """
    secret = path.read_bytes().strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(f"a token has at least {SECRET_BYTES_MIN} bytes, this file holds {len(secret)}")
    return secret
