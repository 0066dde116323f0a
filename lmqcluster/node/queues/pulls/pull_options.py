"""How a pull from one queue leases its messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from ....core.log.commands import Poll, Pull, PullFirst, PullInSession

__all__ = ["PLAIN_PULL", "AnyPull", "PullOptions", "QueuePull"]

QueuePull = Pull | PullInSession | Poll
"""The commands that pull from one queue."""
AnyPull = QueuePull | PullFirst


class PullOptions(NamedTuple):
    """The kind of a command that pulls from one queue, and its fields after queue and count.

    Pulls with equal options wait in one line and may share a command.
    """

    kind: type[QueuePull]
    fields: tuple[Any, ...]

    @classmethod
    def of(cls, command: QueuePull) -> PullOptions:
        """Return the options of a command that is sent again for waiting clients; a poll is counted only once."""
        if isinstance(command, Poll):
            attempt = (command.owner, command.attempt, command.remember_us)
            return cls(Poll, (command.hide_us, command.takes_hidden, True, *attempt))
        if isinstance(command, Pull):
            return cls(Pull, (command.lease_us, command.settles))
        fields = (command.lease_us, command.session, command.charge, command.known, command.owner)
        return cls(PullInSession, fields)

    def command(self, queue: bytes, count: int) -> QueuePull:
        """Return a pull with these options."""
        return self.kind(queue, count, *self.fields)

    @property
    def session(self) -> int | None:
        """Return the session in which the pull is made, None for none."""
        session: int | None = self.fields[1] if self.kind is PullInSession else None
        return session

    def may_share(self, command: QueuePull) -> bool:
        """Return whether a pull with these options may join a command of its kind.

        It may not if one of the pulls could return deliveries that the other one got.
        """
        if isinstance(command, Pull):
            return (command.lease_us, command.settles) == self.fields
        return isinstance(command, PullInSession) and command.known < 0 and PullOptions.of(command) == self


PLAIN_PULL = PullOptions(Pull, (0, False))
"""The options of a pull with the queue's timeout."""
