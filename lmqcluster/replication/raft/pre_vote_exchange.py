"""The messages of pre-votes: a node asks the members whether it could win an election, and answers their questions."""

from __future__ import annotations

from collections.abc import Iterable

from ..base.membership import PeerNode
from ..storage.journal.journal import Journal
from .pre_vote import PreVote
from .view import Carrier, Message, RaftView

__all__ = ["PreVoteExchange"]


class PreVoteExchange:
    """Questions and answers of one node.

    Args:
        raft: this node's Raft core.
        carrier: sends messages to members.
        rounds: this node's rounds, and its knowledge of a leader.
    """

    def __init__(self, raft: RaftView, carrier: Carrier, journal: Journal, rounds: PreVote) -> None:
        self._raft = raft
        self._carrier = carrier
        self._journal = journal
        self._rounds = rounds

    def ask(self, nodes: Iterable[PeerNode]) -> None:
        """D23: ask whether an election could be won before disturbing the term."""
        message = {
            "type": "pre_vote",
            "term": self._raft.term(),
            "round": self._rounds.begin(),
            "last_log_index": self._journal.last_index,
            "last_log_term": self._journal.term_at(self._journal.last_index),
        }
        for node in sorted(nodes, key=lambda n: str(n.id)):
            self._carrier.send(node, message)

    def answer(self, node: PeerNode, message: Message) -> None:
        """D23: grant a pre-vote if there is no leader and the asking node's log is not behind; this is not binding."""
        raft, last = self._raft, self._journal.last_index
        up_to_date = (message["last_log_term"], message["last_log_index"]) >= (self._journal.term_at(last), last)
        leaderless = not raft.is_leader() and not self._rounds.has_leader()
        self._carrier.send(
            node,
            {
                "type": "pre_vote_reply",
                "term": raft.term(),
                "round": message["round"],
                "granted": up_to_date and leaderless and message["term"] >= raft.term() and not raft.is_recovering(),
                # Only the leader is sure to know all additions.
                "stranger": raft.is_leader() and str(node.id) not in raft.members(),
            },
        )

    def answered(self, node: PeerNode, message: Message, *, is_voter: bool) -> None:
        """Record the answer of a node in this or an earlier term; `is_voter`: its vote would count."""
        if message["stranger"]:
            self._rounds.refused_as_stranger = True
        if is_voter and message["granted"]:
            self._rounds.granted(str(node.id), message["round"])
