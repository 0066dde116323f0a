"""Questions to the other members, over the Raft port and each on a separate connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ..replication.peers.messages import FrameError
from ..replication.replica import Replica

__all__ = ["PeerAnswer", "PeerPoll", "ask_member", "ask_others"]

ASK_PERIOD_S: Final = 1.0
ASK_TIMEOUT_S: Final = 3.0


async def ask_member(replica: Replica, address: str, verb: str, arguments: list[str]) -> dict[str, Any] | None:
    """Return a member's answer; empty if it does not know the question, None if it cannot be reached."""
    try:
        return await replica.transport.ask(address, verb, arguments, timeout_s=ASK_TIMEOUT_S)
    except LookupError:
        return {}
    except (OSError, TimeoutError, FrameError):
        return None


async def ask_others(replica: Replica, verb: str, arguments: list[str]) -> dict[str, dict[str, Any] | None]:
    """Ask all other members at the same time; return the answers by member, see `ask_member`.

    A member that the replica does not reach is not asked.
    """
    status = replica.status()
    others = {member: address for member, address in status.members.items() if member != status.id}
    asked = [member for member in others if status.reaches(member)]
    answers = await asyncio.gather(*(ask_member(replica, others[member], verb, arguments) for member in asked))
    return {**dict.fromkeys(others), **dict(zip(asked, answers, strict=True))}


@dataclass(slots=True)
class PeerAnswer:
    """A member's last answer.

    Attributes:
        at: event-loop time of its arrival.
        round_trip_s: its delay, including the connection set-up.
        commit_index: commit index of this node when it asked.
        result: the answer; empty if the member does not know the question.
    """

    at: float
    round_trip_s: float
    commit_index: int
    result: dict[str, Any]


class PeerPoll:
    """The latest answers of the other members to one question, asked at most once a second and only on demand.

    Args:
        replica: returns the current replica, which is replaced when the node joins or leaves a cluster.
        verb, arguments: the question.
        patience_s: how long `look` waits for connected members; it shows later answers the next time.
    """

    def __init__(self, replica: Callable[[], Replica], verb: str, arguments: list[str], *, patience_s: float) -> None:
        self._replica = replica
        self._question = verb, arguments
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, PeerAnswer] = {}
        self._asked_at = float("-inf")
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def look(self) -> None:
        """Ask every other member if that is due; most answer before this returns."""
        now = self._loop.time()
        if now - self._asked_at >= ASK_PERIOD_S:
            self._asked_at = now
            self._ask_all()
        connected = self._replica().status().connected
        expected = [task for member, task in self._asking.items() if member in connected]
        if expected:
            await asyncio.wait(expected, timeout=self._patience_s)

    def _ask_all(self) -> None:
        status = self._replica().status()
        members = status.members
        self._answers = {one: answer for one, answer in self._answers.items() if one in members}
        for member, address in members.items():
            if member != status.id and member not in self._asking:
                task = self._asking[member] = self._loop.create_task(self._ask(member, address))
                task.add_done_callback(partial(self._asked, member))

    def answer(self, member: str) -> PeerAnswer | None:
        """Return a member's last answer, None before the first one."""
        return self._answers.get(member)

    def age_s(self, answer: PeerAnswer) -> float:
        """Return how long ago an answer arrived."""
        return self._loop.time() - answer.at

    def close(self) -> None:
        """Cancel all questions."""
        for task in list(self._asking.values()):
            task.cancel()

    def _asked(self, member: str, _task: asyncio.Task[None]) -> None:
        del self._asking[member]

    async def _ask(self, member: str, address: str) -> None:
        replica = self._replica()
        begun = self._loop.time()
        commit_index = replica.status().commit_index
        result = await ask_member(replica, address, *self._question)
        # The age of the last answer shows that a member cannot be reached.
        if result is not None:
            now = self._loop.time()
            self._answers[member] = PeerAnswer(now, now - begun, commit_index, result)
