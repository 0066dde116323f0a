"""The attributes ``RedrivePolicy`` and ``RedriveAllowPolicy``: JSON with ARNs for clients, names for the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .errors import INVALID_ATTRIBUTE_VALUE, SqsError, value_error
from .names import arn_name

__all__ = ["AllowPolicy", "RedrivePolicy", "allow_policy", "redrive_policy"]

_POLICY: Final = "RedrivePolicy"
_COUNTS: Final = range(1, 1_001)
_SOURCES_MAX: Final = 10
_ALL, _NONE, _SOME = "allowAll", "denyAll", "byQueue"
Arn = Callable[[bytes], str]


class RedrivePolicy(NamedTuple):
    """Where a queue sends its dead letters, and after how many deliveries."""

    target: bytes
    deliveries: int

    def shown(self, arn: Arn) -> str:
        """Return the policy as clients see it."""
        value = {"deadLetterTargetArn": arn(self.target), "maxReceiveCount": self.deliveries}
        return json.dumps(value, separators=(",", ":"))


def redrive_policy(text: str) -> RedrivePolicy | None:
    """Return a policy that a client gives; None if it gives none.

    Raises:
        SqsError: ``InvalidParameterValue``.
    """
    if not text:
        return None
    given = _object(text)
    if given is None:
        raise value_error(text, _POLICY, "Redrive policy is not a valid JSON map.")
    arn, count = given.get("deadLetterTargetArn"), given.get("maxReceiveCount")
    if not isinstance(arn, str) or not arn:
        reason = "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."
        raise value_error(text, _POLICY, reason)
    if count is None:
        raise value_error(text, _POLICY, "Redrive policy does not contain mandatory attribute: maxReceiveCount.")
    number = _count(count)
    if number not in _COUNTS:
        reason = f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive."
        raise value_error(text, _POLICY, reason)
    target = arn_name(arn)
    if target is None:
        raise value_error(text, _POLICY, "Invalid value for deadLetterTargetArn.")
    return RedrivePolicy(target, number)


def _count(value: Any) -> int:
    if type(value) is str and len(value) <= len("1000") and value.isascii() and value.isdecimal():
        return int(value)
    return value if type(value) is int else 0


class AllowPolicy(NamedTuple):
    """Which queues may send their dead letters here; `sources` are names, for `byQueue` only."""

    permission: str = _ALL
    sources: tuple[str, ...] = ()

    def allows(self, source: bytes) -> bool:
        """Return whether a queue may."""
        return self.permission == _ALL or (
            self.permission == _SOME and source.decode("utf-8", "replace") in self.sources
        )

    def kept(self) -> str:
        """Return the policy as the cluster keeps it."""
        return json.dumps([self.permission, *self.sources], separators=(",", ":"))

    @classmethod
    def of_kept(cls, text: str | None) -> AllowPolicy:
        """Return the policy that the cluster keeps, by default one that allows all queues."""
        if text is None:
            return cls()
        permission, *sources = json.loads(text)
        return cls(permission, tuple(sources))

    def shown(self, arn: Arn) -> str:
        """Return the policy as clients see it."""
        value: dict[str, Any] = {"redrivePermission": self.permission}
        if self.permission == _SOME:
            value["sourceQueueArns"] = [arn(name.encode()) for name in self.sources]
        return json.dumps(value, separators=(",", ":"))


def allow_policy(text: str) -> AllowPolicy | None:
    """Return a policy that a client gives; None if it gives none.

    Raises:
        SqsError: ``InvalidAttributeValue``.
    """
    if not text:
        return None
    given = _object(text) or {}
    permission, sources = given.get("redrivePermission"), given.get("sourceQueueArns")
    if permission not in (_ALL, _NONE, _SOME):
        raise _refused()
    if permission != _SOME:
        if sources:
            raise _refused()
        return AllowPolicy(permission)
    if not isinstance(sources, list) or not 0 < len(sources) <= _SOURCES_MAX:
        raise _refused()
    names = [arn_name(one) if isinstance(one, str) else None for one in sources]
    try:
        known = tuple(dict.fromkeys(name.decode() for name in names if name is not None))
    except UnicodeError as exc:
        raise _refused() from exc
    if None in names:
        raise _refused()
    return AllowPolicy(permission, known)


def _refused() -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_VALUE, "Invalid value for the parameter RedriveAllowPolicy.")


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
