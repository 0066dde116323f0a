"""Commands on the cluster as a whole: its founding and version, tokens, digests. Every public method is one command."""

from __future__ import annotations

import hashlib

from ..log import commands as log
from ..log.results import IncompatibleVersionError
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

    def barrier(self, _command: log.Barrier) -> bool:
        """Change nothing. Once it is applied, its proposer knows that all entries before it are applied."""
        return True

    def set_salt(self, command: log.SetSalt) -> bool:
        """Set the salt of message ids, unless there is one, or renew it.

        A new salt invalidates all ids issued so far: those of deliveries in a lost part of the log would name later ones.
        The numbers of such deliveries are skipped, because a node may be about to settle one.
        """
        salt, state = command.salt, self._state
        if type(salt) is not bytes or len(salt) != SALT_BYTES or type(command.renews) is not bool:
            raise ValueError(f"the salt must have {SALT_BYTES} bytes, and whether to renew it be true or false")
        if command.renews:
            state.last_delivery += NUMBERS_SKIPPED
        if command.renews or not state.salt:
            state.salt = salt
        return True

    def digest(self, command: log.Digest) -> bytes:
        """Return a digest that is equal on equal replicas: of all counts, and of a sample of queues and messages.

        The sample follows from the token, so that comparisons with other tokens cover other samples.

        Raises:
            ValueError: the token is not bytes.
        """
        state, token = self._state, command.token
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
        for table in (state.schedules, state.sent, state.received, state.move_tasks):
            for line in table.sample(int.from_bytes(token, "big")):
                digest.update(line.encode())
        for text in part_of_contents(state, int.from_bytes(token, "big")):
            digest.update(text)
        return digest.digest()

    def set_time(self, command: log.SetTime) -> bool:
        """Record the time of day.

        Raises:
            ValueError: it is out of range.
        """
        unix_us = command.unix_us
        if type(unix_us) is not int or not 0 <= unix_us < _UNIX_US_MAX:
            raise ValueError("a time of day must be an integer of microseconds since 1970")
        self._state.times.tell(self._state.now_us, unix_us)
        return True

    def report_digest(self, command: log.ReportDigest) -> bool:
        """Change nothing: the nodes read the report in the log."""
        if {type(command.token), type(command.member), type(command.digest)} != _ONLY_BYTES:
            raise ValueError("a report has a token, a member and a digest, all of them bytes")
        return True

    def upgrade(self, command: log.Upgrade) -> int:
        """Raise the machine version; return the resulting one.

        Raises:
            IncompatibleVersionError: this program does not support it; the node must stop.
        """
        state, version = self._state, command.version
        if type(version) is not int:
            raise ValueError("a machine version must be an integer")
        if version > state.VERSION_MAX:
            raise IncompatibleVersionError(
                f"the cluster moves to machine version {version}, this program understands up to {state.VERSION_MAX}"
            )
        state.version = max(state.version, version)
        return state.version

    def set_token(self, command: log.SetToken) -> TokenResult:
        """Create a token. An empty principal means the token's name.

        Raises:
            ValueError: a field is out of range.
        """
        state, lifetime_us, created_us = self._state, command.lifetime_us, command.created_us
        if type(lifetime_us) is not int or lifetime_us < 0:
            raise ValueError("a lifetime must be an integer, 0 or more")
        if not isinstance(created_us, int):
            raise ValueError("a time of day must be an integer")
        name, principal = command.name, command.principal
        expires_us = created_us + lifetime_us if lifetime_us else 0
        role = Role(command.role)
        owner, key = principal or name, command.sqs_key
        token = Token(name, command.digest, role, command.pattern, created_us, expires_us, owner, key)
        return state.tokens.set(token, without_admin=command.without_admin, joins=bool(principal))

    def delete_token(self, command: log.DeleteToken) -> TokenResult:
        """Delete a token. The state that its clients created belongs to its principal, and stays."""
        return self._state.tokens.delete(command.name, without_admin=command.without_admin)

    def set_api_key(self, command: log.SetApiKey) -> bool:
        """Add an API key, or delete it."""
        keys, prefix = self._state.api_keys, command.prefix
        return keys.delete(command.digest) if prefix is None else keys.set(command.digest, prefix)
