"""Access tokens: digests of the secrets that the cluster issued, and the rights that they grant.

The core only stores tokens: the nodes authorise a command before it reaches the log. Signatures of requests to the SQS port
can be checked only with a secret, so a token for that port has a second one, derived from the first, which does not reveal it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from ..log.commands import Compile
from .quotas import Quotas

__all__ = ["EVERY_QUEUE", "PRINCIPALS_MAX", "Role", "Token", "TokenResult", "Tokens"]

EVERY_QUEUE = b".*"
"""The pattern of a token for all queues, and so also for operations that concern no queue."""
NAME_BYTES_MAX = 100
DIGEST_BYTES = 32
TOKENS_MAX = 1000
PRINCIPALS_MAX = 10_000
"""Most principals that own something, clients without a token included."""
_INT_MAX = 1 << 62


class Role(IntEnum):
    """The rights of a token; each role includes those before it. Part of the log's format: never renumber."""

    READ = 1
    WRITE = 2
    ADMIN = 3


class TokenResult(IntEnum):
    """The outcome of a command. Part of the log's format: never renumber."""

    DONE = 0
    EXISTS = 1
    UNKNOWN = 2
    FULL = 3
    NO_ADMIN = 4
    TAKEN = 5
    CROWDED = 6


class Token(NamedTuple):
    """One token.

    Attributes:
        name: the name that identifies the token to people; 1 to 100 bytes.
        digest: SHA-256 of the secret.
        pattern: regular expression that is searched for in queue names.
        created_us: time of day at the node that accepted it.
        expires_us: time of day at which it expires, 0 for never.
        principal: the owner of the state that its clients create; other tokens may share it; 1 to 100 bytes.
        sqs_key: the secret that signs requests to the SQS port; empty if the token is not for that port.
    """

    name: bytes
    digest: bytes
    role: Role
    pattern: bytes
    created_us: int
    expires_us: int
    principal: bytes
    sqs_key: bytes = b""

    @property
    def rules_all(self) -> bool:
        """Return whether it grants all rights without expiry."""
        return self.role == Role.ADMIN and self.pattern == EVERY_QUEUE and not self.expires_us


class Tokens:
    """All tokens by name.

    Attributes:
        revision: changes with every change, so that a node detects changes in O(1).
    """

    def __init__(self, compile_pattern: Compile, quotas: Quotas) -> None:
        self.revision = 0
        self._compile = compile_pattern
        self._quotas = quotas
        self._by_name: dict[bytes, Token] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Token]:
        """Return all tokens, sorted by name."""
        return (self._by_name[name] for name in sorted(self._by_name))

    def set(self, token: Token, *, without_admin: bool, joins: bool) -> TokenResult:
        """Add a token. Idempotent: adding the same one again changes nothing.

        Args:
            token: the token.
            without_admin: add it even if no token would grant all rights, so that no client could manage the others.
            joins: add it even if its principal has tokens already, or owns state that former tokens have left.

        Raises:
            ValueError: it is malformed.
        """
        self._check(token)
        known = self._by_name.get(token.name)
        if known is not None:
            same = (known.digest, known.sqs_key) == (token.digest, token.sqs_key)
            return TokenResult.DONE if same else TokenResult.EXISTS
        if len(self._by_name) >= TOKENS_MAX:
            return TokenResult.FULL
        if not (without_admin or token.rules_all or self._has_admin()):
            return TokenResult.NO_ADMIN
        if not self._is_known(token.principal):
            if self._quotas.owners >= PRINCIPALS_MAX:
                return TokenResult.CROWDED
        elif not joins:
            return TokenResult.TAKEN
        self._by_name[token.name] = token
        self.revision += 1
        return TokenResult.DONE

    def delete(self, name: bytes, *, without_admin: bool) -> TokenResult:
        """Delete a token; see `set` for `without_admin`. The last token may always be deleted."""
        token = self._by_name.get(name)
        if token is None:
            return TokenResult.UNKNOWN
        if not (without_admin or len(self._by_name) == 1 or self._has_admin(but=name)):
            return TokenResult.NO_ADMIN
        del self._by_name[name]
        self.revision += 1
        return TokenResult.DONE

    def _is_known(self, principal: bytes) -> bool:
        """Return whether a token has this principal, or the principal owns state."""
        return self._quotas.owns(principal) or any(one.principal == principal for one in self._by_name.values())

    def _has_admin(self, but: bytes = b"") -> bool:
        return any(token.rules_all for token in self._by_name.values() if token.name != but)

    def _check(self, token: Token) -> None:
        texts = (token.name, token.digest, token.pattern, token.principal, token.sqs_key)
        lengths = (len(token.name), len(token.principal)) if set(map(type, texts)) == {bytes} else (0,)
        if not all(0 < length <= NAME_BYTES_MAX for length in lengths):
            raise ValueError("a token has a name and a principal of 1 to 100 bytes, a digest and a pattern")
        if len(token.digest) != DIGEST_BYTES:
            raise ValueError(f"the digest of a token has {DIGEST_BYTES} bytes")
        if len(token.sqs_key) not in (0, DIGEST_BYTES):
            raise ValueError(f"the SQS key of a token is empty or has {DIGEST_BYTES} bytes")
        if not (0 <= token.created_us <= _INT_MAX and 0 <= token.expires_us <= _INT_MAX):
            raise ValueError("the times of a token are out of range")
        self._compile(token.pattern)

    def rows(self) -> Iterator[list[object]]:
        """Return the table as of now for a snapshot, sorted by name; it may change while the rows are read."""
        return iter([[token.name, token.digest, int(token.role), *token[3:]] for token in self])

    def load(self, rows: Iterable[tuple[bytes, bytes, int, bytes, int, int, bytes, bytes]]) -> None:
        """Add the rows of a snapshot.

        Raises:
            ValueError: a token is malformed, or occurs twice.
        """
        for name, digest, role, pattern, created_us, expires_us, principal, sqs_key in rows:
            token = Token(name, digest, Role(role), pattern, created_us, expires_us, principal, sqs_key)
            self._check(token)
            if name in self._by_name:
                raise ValueError("a token is there twice")
            self._by_name[name] = token
            self.revision += 1
