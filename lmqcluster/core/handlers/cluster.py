"""Commands on the cluster as a whole: its founding and version, tokens, digests. Every public method is one command."""

from __future__ import annotations

import hashlib

from ..log.commands import IncompatibleVersionError
from ..owners.quotas import Kind
from ..owners.tokens import Role, Token, TokenResult
from ..state.contents_digest import part_of_contents
from ..state.state import State

__all__ = ["ClusterCommands"]

SALT_BYTES = 10
NUMBERS_SKIPPED = 1 << 32
"""Numbers skipped by a new salt: more than were ever lost at once, and few enough for 65,000 times."""
_ONLY_BYTES = {bytes}
_UNIX_US_MAX = 1 << 60


class ClusterCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    def barrier(self) -> bool:
        """Change nothing. Once it is applied, its proposer knows that all entries before it are applied."""
        return True

    def found(self, salt: bytes) -> bool:
        """Set the salt of message ids, unless there is one."""
        _check_salt(salt)
        if not self._state.salt:
            self._state.salt = salt
        return True

    def renew_salt(self, salt: bytes) -> bool:
        """Invalidate all ids issued so far: those of deliveries in a lost part of the log would name later ones.

        The numbers of such deliveries are skipped, because a node may be about to settle one.
        """
        _check_salt(salt)
        self._state.salt = salt
        self._state.last_delivery += NUMBERS_SKIPPED
        return True

    def digest(self, token: bytes) -> bytes:
        """Return a digest that is equal on equal replicas: of all counts, and of a sample of queues and messages.

        The sample follows from the token, so that comparisons with other tokens cover other samples.

        Raises:
            ValueError: the token is not bytes.
        """
        state = self._state
        if type(token) is not bytes:
            raise ValueError("a token must be bytes")
        counted = (
            *(token, state.version, state.now_us, state.salt, state.last_delivery, state.last_sequence),
            *(len(state.queues), state.totals.messages, state.totals.body_bytes, state.totals.property_bytes),
            *(state.deleted_total, state.aged_total),
            *(len(state.bindings), len(state.tokens), sorted(state.waiting_pushes.gaining), state.defaults.row()),
            *(state.sessions.last, state.locks.last_token, state.waiting_pushes.last, state.batches.last_session),
            *(state.quotas.total(kind) for kind in Kind),
        )
        digest = hashlib.blake2b(repr(counted).encode(), digest_size=16)
        for text in part_of_contents(state, int.from_bytes(token, "big")):
            digest.update(text)
        return digest.digest()

    def set_time(self, unix_us: int) -> bool:
        """Record the time of day.

        Raises:
            ValueError: it is out of range.
        """
        if type(unix_us) is not int or not 0 <= unix_us < _UNIX_US_MAX:
            raise ValueError("a time of day must be an integer of microseconds since 1970")
        self._state.times.tell(self._state.now_us, unix_us)
        return True

    def report_digest(self, token: bytes, member: bytes, digest: bytes) -> bool:
        """Change nothing: the nodes read the report in the log."""
        if {type(token), type(member), type(digest)} != _ONLY_BYTES:
            raise ValueError("a report has a token, a member and a digest, all of them bytes")
        return True

    def upgrade(self, version: int) -> int:
        """Raise the machine version; return the resulting one.

        Raises:
            IncompatibleVersionError: this program does not support it; the node must stop.
        """
        state = self._state
        if type(version) is not int:
            raise ValueError("a machine version must be an integer")
        if version > state.VERSION_MAX:
            raise IncompatibleVersionError(
                f"the cluster moves to machine version {version}, this program understands up to {state.VERSION_MAX}"
            )
        state.version = max(state.version, version)
        return state.version

    def set_token(
        self,
        name: bytes,
        digest: bytes,
        role: int,
        pattern: bytes,
        lifetime_us: int,
        without_admin: bool,
        created_us: int,
        principal: bytes = b"",
    ) -> TokenResult:
        """Create a token. An empty `principal` means the token's name."""
        state = self._state
        if type(lifetime_us) is not int or lifetime_us < 0:
            raise ValueError("a lifetime must be an integer, 0 or more")
        if not isinstance(created_us, int):
            raise ValueError("a time of day must be an integer")
        expires_us = created_us + lifetime_us if lifetime_us else 0
        token = Token(name, digest, Role(role), pattern, created_us, expires_us, principal or name)
        return state.tokens.set(token, without_admin=without_admin, joins=bool(principal))

    def delete_token(self, name: bytes, without_admin: bool) -> TokenResult:
        """Delete a token. The state that its clients created belongs to its principal, and stays."""
        return self._state.tokens.delete(name, without_admin=without_admin)


def _check_salt(salt: bytes) -> None:
    if type(salt) is not bytes or len(salt) != SALT_BYTES:
        raise ValueError(f"the salt must have {SALT_BYTES} bytes")
