"""Permissions of queues: stored and shown if the node ignores policies, refused otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .errors import OVER_LIMIT, UNSUPPORTED, SqsError, missing, value_error
from .queue_facts import PREFIX

if TYPE_CHECKING:
    from .call import Action, Call, Tools

__all__ = ["PolicyActions"]

_POLICY: Final = "Policy"
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACTIONS_MAX: Final = 7
_ACTION_NAMES: Final = frozenset(
    (
        "*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes", "GetQueueUrl",
        "ListDeadLetterSourceQueues", "PurgeQueue",
    )
)  # fmt: skip


class PolicyActions:
    """The actions."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def table(self) -> Mapping[str, Action]:
        """Return the actions by name."""
        return {"AddPermission": self.add, "RemovePermission": self.remove}

    async def add(self, call: Call) -> None:
        """Add a statement to the policy of a queue."""
        policy = await self._policy(call)
        label, accounts, actions = call.needed("Label"), call.get("AWSAccountIds", ()), call.get("Actions", ())
        if _LABEL.fullmatch(label) is None:
            raise value_error(label, "Label", "Must be 1 to 80 alphanumeric characters, hyphens or underscores.")
        if not accounts:
            raise value_error("[]", "PrincipalId", "Unable to verify.")
        if not actions:
            raise missing("Actions")
        if len(actions) > _ACTIONS_MAX:
            text = f"{len(actions)} Actions were found, maximum allowed is {_ACTIONS_MAX}."
            raise SqsError(OVER_LIMIT, text)
        for action in actions:
            if action not in _ACTION_NAMES:
                reason = "Only the queue owner is allowed to invoke this action."
                raise value_error(f"SQS:{action}", "ActionName", reason)
        if any(one.get("Sid") == label for one in policy["Statement"]):
            raise value_error(label, "Label", "Already exists.")
        policy["Statement"].append(self._statement(call, label, accounts, actions))
        await self._keep(call, policy)

    def _statement(self, call: Call, label: str, accounts: list[str], actions: list[str]) -> dict[str, Any]:
        principals = [f"arn:aws:iam::{account}:root" for account in accounts]
        names = [f"SQS:{action}" for action in actions]
        return {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
            "Action": names[0] if len(names) == 1 else names,
            "Resource": self._arn(call),
        }

    async def remove(self, call: Call) -> None:
        """Remove a statement from the policy of a queue."""
        policy = await self._policy(call)
        label = call.needed("Label")
        left = [one for one in policy["Statement"] if one.get("Sid") != label]
        if len(left) == len(policy["Statement"]):
            raise value_error(label, "Label", "can't find label.")
        policy["Statement"] = left
        await self._keep(call, policy)

    async def _policy(self, call: Call) -> dict[str, Any]:
        """Return the policy of the queue, empty if it has none."""
        if "policy" not in self._tools.ignored:
            text = (
                "Permissions have no effect here; the option sqs_ignore = policy of the node stores them all the same."
            )
            raise SqsError(UNSUPPORTED, text)
        facts = await self._tools.present(call.queue)
        empty = {"Version": "2008-10-17", "Id": f"{self._arn(call)}/SQSDefaultPolicy", "Statement": []}
        kept = facts.text(_POLICY)
        if kept is None:
            return empty
        try:
            policy: Any = json.loads(kept)
        except (ValueError, RecursionError):
            policy = None
        statements = policy.get("Statement") if isinstance(policy, dict) else None
        if not isinstance(statements, list) or not all(isinstance(one, dict) for one in statements):
            raise value_error(kept, _POLICY, "The policy of the queue has no list of statements.")
        return dict(policy)

    async def _keep(self, call: Call, policy: dict[str, Any]) -> None:
        text = json.dumps(policy, separators=(",", ":")) if policy["Statement"] else None
        changes = {PREFIX + _POLICY: text}
        await self._tools.service.set_properties(call.queue, [], annotations=changes, must_exist=True)

    def _arn(self, call: Call) -> str:
        return self._tools.names.arn(call.request, call.queue)
