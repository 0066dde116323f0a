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
"""By a new salt: more than were ever lost at once, and few enough for 65,000 times."""
_ONLY_BYTES = {bytes}
_UNIX_US_MAX = 1 << 60


class ClusterCommands:
    """Carries them out on the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def barrier(self) -> bool:
        """Change nothing: its proposer knows that all before it is applied."""
        return True

    def found(self, salt: bytes) -> bool:
        """Take the salt of message ids, unless there is one."""
        _check_salt(salt)
        if not self._state.salt:
            self._state.salt = salt
        return True

    def renew_salt(self, salt: bytes) -> bool:
        """Take the meaning from all ids handed out so far: those of deliveries in a lost part of the log would name later ones.

        The numbers of such deliveries are skipped, because a node may be about to settle one.
        """
        _check_salt(salt)
        self._state.salt = salt
        self._state.last_delivery += NUMBERS_SKIPPED
        return True

    def digest(self, token: bytes) -> bytes:
        """Return a digest that is equal on equal replicas: of all that is counted, and of some queues and messages.

        Which ones follows from the token, so that comparisons with other tokens compare others.
        """
        state = self._state
        if type(token) is not bytes:
            raise ValueError("a token must be bytes")
        counted = (
            *(token, state.version, state.now_us, state.salt, state.last_delivery, state.last_sequence),
            *(len(state.queues), state.stock.messages, state.stock.body_bytes, state.stock.property_bytes),
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
        """Take note which time of day it is."""
        if type(unix_us) is not int or not 0 <= unix_us < _UNIX_US_MAX:
            raise ValueError("a time of day must be an integer of microseconds since 1970")
        self._state.times.tell(self._state.now_us, unix_us)
        return True

    def report_digest(self, token: bytes, member: bytes, digest: bytes) -> bool:
        """Change nothing: the nodes read it in the log."""
        if {type(token), type(member), type(digest)} != _ONLY_BYTES:
            raise ValueError("a report has a token, a member and a digest, all of them bytes")
        return True

    def upgrade(self, version: int) -> int:
        """Raise the machine version; returns the one from now on.

        Raises:
            IncompatibleVersionError: this program does not understand it; the node must stop.
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
        """Make a token. An empty `principal` is one of its own, which has the token's name."""
        state = self._state
        if type(lifetime_us) is not int or lifetime_us < 0:
            raise ValueError("a lifetime must be an integer, 0 or more")
        if not isinstance(created_us, int):
            raise ValueError("a time of day must be an integer")
        expires_us = created_us + lifetime_us if lifetime_us else 0
        token = Token(name, digest, Role(role), pattern, created_us, expires_us, principal or name)
        return state.tokens.set(token, without_admin=without_admin, joins=bool(principal))

    def delete_token(self, name: bytes, without_admin: bool) -> TokenResult:
        """Delete a token. What its clients have left belongs to its principal, and stays."""
        return self._state.tokens.delete(name, without_admin=without_admin)


def _check_salt(salt: bytes) -> None:
    if type(salt) is not bytes or len(salt) != SALT_BYTES:
        raise ValueError(f"the salt must have {SALT_BYTES} bytes")
