"""Answers to administrative requests from peers: status, changes of the membership, transfer of leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from .base.errors import FatalReplicationError
from .base.settings import RaftSettings
from .leader_transfer import transfer_leadership
from .member import MemberView

__all__ = ["PeerRequests"]

CHANGE_TIMEOUT_S = 10.0
ARGUMENT_CHARACTERS_MAX = 255


async def _no_clients(_arguments: list[str]) -> dict[str, Any]:
    """Answer for a member that serves no clients."""
    return {}


class PeerRequests:
    """Answers the requests of peers for one member.

    Attributes:
        node_figures: returns the node's figures for the request ``vitals``; set by the node.
        clients: answers the request ``clients`` about the clients of the node; set by the node.
        founders: returns the ids of the founding members, None until all are found; set by the node.
    """

    def __init__(self, member: MemberView, settings: RaftSettings) -> None:
        self.node_figures: Callable[[], dict[str, Any]] = dict
        self.clients: Callable[[list[str]], Awaitable[dict[str, Any]]] = _no_clients
        self.founders: Callable[[], Collection[str] | None] = lambda: None
        self._member = member
        self._settings = settings

    async def answer(self, verb: str, arguments: list[Any]) -> dict[str, Any]:
        """Answer an administrative question: ``{"ok": True, "result": {...}}`` or ``{"ok": False, "result": reason}``.

        If a request needs the leader, other members answer with ``done`` false and the leader's address.
        """
        try:
            if not all(type(one) is str and len(one) <= ARGUMENT_CHARACTERS_MAX for one in arguments):
                return {
                    "ok": False,
                    "result": f"the arguments of {verb} must be strings of at most {ARGUMENT_CHARACTERS_MAX} characters",
                }
            if verb == "cluster":
                return {"ok": True, "result": self._cluster()}
            if verb == "vitals":
                return {"ok": True, "result": self.node_figures()}
            if verb == "clients":
                return {"ok": True, "result": await self.clients(arguments)}
            if verb in ("add", "rem"):
                if len(arguments) != 2:
                    return {"ok": False, "result": f"{verb} takes a member id and an address"}
                return await self._change(verb, *arguments)
            if verb == "transfer":
                return await self._transfer(*arguments[:1])
        except FatalReplicationError as exc:
            self._member.failed(exc)
            return {"ok": False, "result": str(exc)}
        return {"ok": False, "result": f"unknown question {verb!r}"}

    def _cluster(self) -> dict[str, Any]:
        core, meta = self._member.core, self._member.meta
        members: Mapping[str, str] = core.members()
        leader = core.leader_id()
        founders = self.founders() if meta.awaits_founders else members
        return {
            "id": meta.node_id,
            "origin": meta.origin,
            "address": self._member.transport.me.address,
            "leader": leader,
            "leader_address": members.get(leader or ""),
            "members": members,
            "founding": meta.founding,
            "founders": None if founders is None else sorted(founders),
            "guarded": len(self._member.machine.state.tokens) > 0,
        }

    async def _change(self, verb: str, node_id: str, address: str) -> dict[str, Any]:
        """Change the membership if this node leads; otherwise name the leader, which the caller asks next."""
        core = self._member.core
        if not core.is_leader():
            return {"ok": True, "result": {**self._cluster(), "done": False}}
        if (node_id in core.members()) == (verb == "add"):
            return {"ok": True, "result": {**self._cluster(), "done": True}}
        if verb == "add":
            lag = core.learn(node_id, address)
            self._member.wake()
            if lag is None or lag > self._settings.learner_lag_max:
                return {"ok": True, "result": {**self._cluster(), "done": False, "learning": True, "lag": lag}}
        elif (reason := self._unsafe_without(node_id)) is not None:
            return self._refused(reason)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answered(success: bool) -> None:
            if not done.done():
                done.set_result(success)

        core.propose_change(verb, node_id, address, answered)
        self._member.wake()
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                success = await done
        except TimeoutError:
            return self._in_doubt(f"it was not committed within {CHANGE_TIMEOUT_S:g} s")
        if not success:
            return self._in_doubt("another change is in progress, or leadership has just changed")
        return {"ok": True, "result": {**self._cluster(), "done": True}}

    async def _transfer(self, target: str | None = None) -> dict[str, Any]:
        """Transfer leadership to `target`, or without one to any member; done if `target` leads already.

        A node that does not lead changes nothing.
        """
        core = self._member.core
        if not core.is_leader():
            done = target is not None and core.leader_id() == target
            return {"ok": True, "result": {**self._cluster(), "done": done}}
        if target == self._member.meta.node_id:
            return {"ok": True, "result": {**self._cluster(), "done": True}}
        if target is not None and target not in core.members():
            return {"ok": False, "result": f"there is no member {target}"}
        if len(core.members()) == 1:
            return self._refused("this node is alone, so no other member can take over")
        if target is not None and not self._member.is_able(target):
            return self._refused(f"{target} cannot be reached or is not up to date; the leader has not changed")
        if not await transfer_leadership(self._member, target):
            return self._refused("no up-to-date member took over in time; the leader has not changed")
        return {"ok": True, "result": {**self._cluster(), "done": True}}

    def _refused(self, reason: str) -> dict[str, Any]:
        """Return the answer to a question that is not worth repeating."""
        return {"ok": True, "result": {**self._cluster(), "done": False, "refused": reason}}

    def _in_doubt(self, reason: str) -> dict[str, Any]:
        """Return the answer to a change that may still be committed; asking again gives the outcome."""
        return {"ok": True, "result": {**self._cluster(), "done": False, "in_doubt": reason}}

    def _unsafe_without(self, node_id: str) -> str | None:
        """Return the reason why the other members could not continue without this one; None if they can."""
        rest = set(self._member.core.members()) - {node_id}
        able = {one for one in rest if self._member.is_able(one)}
        if 2 * len(able) > len(rest):
            return None
        return (
            f"without {node_id} the remaining {len(rest)} members would have no quorum; not reachable or not up to date:"
            f" {', '.join(sorted(rest - able))}"
        )
