"""Attributes of queues: what clients may give, and the properties and annotations that it becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .errors import INVALID_ATTRIBUTE_NAME, INVALID_ATTRIBUTE_VALUE, UNSUPPORTED, SqsError
from .queue_facts import ALLOW_POLICY, CONTENT_BASED, PREFIX, THROUGHPUT, WAIT, QueueFacts
from .redrive_policies import AllowPolicy, Arn, RedrivePolicy, allow_policy, redrive_policy

if TYPE_CHECKING:
    from .limits import Limits

__all__ = ["COUNTS", "Changes", "Ignored", "changes_of", "effective", "first_difference", "requested"]

_FIFO_QUEUE: Final = "FifoQueue"
_SCOPE: Final = "DeduplicationScope"
_POLICY: Final = "Policy"
_KEY: Final = "KmsMasterKeyId"
_KEY_PERIOD: Final = "KmsDataKeyReusePeriodSeconds"
_MANAGED: Final = "SqsManagedSseEnabled"
_REDRIVE: Final = "RedrivePolicy"
COUNTS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_READ_ONLY: Final = ("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", *COUNTS)
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_KEY_PERIODS: Final = (60, 86_400)
_KEY_PERIOD_S: Final = 300
_PROPERTIES: Final = {
    "VisibilityTimeout": "timeout",
    "DelaySeconds": "delay",
    "MaximumMessageSize": "max_item_size",
    "MessageRetentionPeriod": "max_age",
}
_SCOPES: Final = {"queue": "queue", "messageGroup": "group"}
_THROUGHPUTS: Final = ("perQueue", "perMessageGroupId")
_FIFO_ONLY: Final = (_SCOPE, THROUGHPUT, CONTENT_BASED)
_ENCRYPTION: Final = (_KEY, _KEY_PERIOD, _MANAGED)
_ALL: Final = frozenset(
    (*_PROPERTIES, *_READ_ONLY, *_FIFO_ONLY, *_ENCRYPTION, _FIFO_QUEUE, _POLICY, _REDRIVE, ALLOW_POLICY, WAIT)
)

Ignored = frozenset[str]
"""Kinds of attributes that the node stores without effect: ``policy``, ``encryption``."""


@dataclass(slots=True)
class Changes:
    """Changes of a queue by its attributes.

    Attributes:
        properties: by name, None to remove one.
        annotations: by name, None to remove one.
        redrive: the new redrive policy, whose target has yet to be checked.
        without_effect: attributes that have none.
    """

    properties: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)
    redrive: RedrivePolicy | None = None
    without_effect: list[str] = field(default_factory=list)

    def keep(self, attribute: str, text: str | None) -> None:
        """Keep an attribute as an annotation."""
        self.annotations[PREFIX + attribute] = text


def _unknown(name: str) -> SqsError:
    """Return the error for an attribute that does not exist, or not for this queue."""
    return SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")


def _wrong(name: str) -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}.")


def changes_of(
    given: Mapping[str, str], *, is_fifo: bool, limits: Limits, ignored: Ignored, before: QueueFacts | None = None
) -> Changes:
    """Return what attributes that a client gives change of a queue; `before` is None for a new one.

    Raises:
        SqsError: ``InvalidAttributeName``, ``InvalidAttributeValue``, ``InvalidParameterValue``, ``UnsupportedOperation``.
    """
    changes = Changes()
    for name, value in given.items():
        _check_name(name, value, is_fifo=is_fifo, is_new=before is None)
        if name in _PROPERTIES:
            changes.properties[_PROPERTIES[name]] = _number(name, value, _range_of(name, limits))
        else:
            _OTHERS[name](changes, name, value, limits, ignored)
    if changes.annotations.get(PREFIX + _KEY) and changes.annotations.get(PREFIX + _MANAGED) == "true":
        text = "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
        raise SqsError(INVALID_ATTRIBUTE_NAME, text)
    if changes.annotations.get(PREFIX + _KEY):
        changes.keep(_MANAGED, "false")
    elif changes.annotations.get(PREFIX + _MANAGED) == "true":
        changes.keep(_KEY, None)
    if is_fifo:
        _check_throughput(changes, before)
    return changes


def _check_name(name: str, value: str, *, is_fifo: bool, is_new: bool) -> None:
    if name not in _ALL or name in _READ_ONLY:
        raise _unknown(name[:100])
    if name == _FIFO_QUEUE:
        if value.lower() not in ("true", "false"):
            raise _wrong(name)
        if is_fifo and not is_new and value.lower() == "false":
            text = "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
            raise SqsError(INVALID_ATTRIBUTE_VALUE, text)
        if not (is_fifo and is_new):
            raise _unknown(name)
    elif name in (_SCOPE, THROUGHPUT) and not is_fifo:
        text = "You can specify the DeduplicationScope only when FifoQueue is set to true."
        raise SqsError(INVALID_ATTRIBUTE_NAME, text)
    elif name in _FIFO_ONLY and not is_fifo:
        raise _unknown(name)


def _check_throughput(changes: Changes, before: QueueFacts | None) -> None:
    throughput = changes.annotations.get(PREFIX + THROUGHPUT)
    if throughput is None and before is not None:
        throughput = before.text(THROUGHPUT)
    by_group = changes.properties.get("key_scope") == "group"
    if "key_scope" not in changes.properties and before is not None:
        by_group = before.is_deduplicated_by_group
    if throughput == _THROUGHPUTS[1] and not by_group:
        raise _wrong(THROUGHPUT)


def _range_of(name: str, limits: Limits) -> tuple[int, int]:
    return {
        "VisibilityTimeout": (0, limits.visibility_s),
        "DelaySeconds": (0, limits.delay_s),
        "MaximumMessageSize": limits.message_bytes,
        "MessageRetentionPeriod": limits.retention_s,
    }[name]


def _number(name: str, value: str, allowed: tuple[int, int]) -> int:
    if _NUMBER.fullmatch(value) is None or not allowed[0] <= int(value) <= allowed[1]:
        raise _wrong(name)
    return int(value)


def _flag(name: str, value: str) -> str:
    flag = value.lower()
    if flag not in ("true", "false"):
        raise _wrong(name)
    return flag


def _set_wait(changes: Changes, name: str, value: str, limits: Limits, _ignored: Ignored) -> None:
    changes.keep(name, str(_number(name, value, (0, limits.wait_s))))


def _set_flag(changes: Changes, name: str, value: str, _limits: Limits, _ignored: Ignored) -> None:
    changes.keep(name, _flag(name, value))


def _set_scope(changes: Changes, name: str, value: str, _limits: Limits, _ignored: Ignored) -> None:
    if value not in _SCOPES:
        raise _wrong(name)
    changes.properties["key_scope"] = _SCOPES[value]


def _set_throughput(changes: Changes, name: str, value: str, _limits: Limits, _ignored: Ignored) -> None:
    if value not in _THROUGHPUTS:
        raise _wrong(name)
    changes.keep(name, value)


def _set_redrive(changes: Changes, _name: str, value: str, _limits: Limits, _ignored: Ignored) -> None:
    changes.redrive = policy = redrive_policy(value)
    changes.properties["dead_letter_queue"] = None if policy is None else policy.target.decode("utf-8", "replace")
    changes.properties["max_deliveries"] = None if policy is None else policy.deliveries


def _set_allow(changes: Changes, name: str, value: str, _limits: Limits, _ignored: Ignored) -> None:
    policy = allow_policy(value)
    changes.keep(name, None if policy is None else policy.kept())


def _set_policy(changes: Changes, name: str, value: str, _limits: Limits, ignored: Ignored) -> None:
    if value:
        _check_ignored(name, "policy", ignored)
        changes.without_effect.append(name)
    changes.keep(name, value or None)


def _set_key(changes: Changes, name: str, value: str, _limits: Limits, ignored: Ignored) -> None:
    if value:
        _check_ignored(name, "encryption", ignored)
        changes.without_effect.append(name)
    changes.keep(name, value or None)


def _set_key_period(changes: Changes, name: str, value: str, _limits: Limits, ignored: Ignored) -> None:
    _check_ignored(name, "encryption", ignored)
    changes.keep(name, str(_number(name, value, _KEY_PERIODS)))


def _set_managed(changes: Changes, name: str, value: str, _limits: Limits, ignored: Ignored) -> None:
    flag = _flag(name, value)
    if flag == "true":
        _check_ignored(name, "encryption", ignored)
        changes.without_effect.append(name)
    changes.keep(name, flag)


def _check_ignored(name: str, option: str, ignored: Ignored) -> None:
    if option not in ignored:
        text = (
            f"{name} has no effect here; the option sqs_ignore = {option} of the node stores and shows it all the same."
        )
        raise SqsError(UNSUPPORTED, text)


_Setter = Callable[[Changes, str, str, "Limits", Ignored], None]
_OTHERS: Final[Mapping[str, _Setter]] = {
    WAIT: _set_wait,
    _FIFO_QUEUE: lambda _changes, _name, _value, _limits, _ignored: None,
    CONTENT_BASED: _set_flag,
    _SCOPE: _set_scope,
    THROUGHPUT: _set_throughput,
    _REDRIVE: _set_redrive,
    ALLOW_POLICY: _set_allow,
    _POLICY: _set_policy,
    _KEY: _set_key,
    _KEY_PERIOD: _set_key_period,
    _MANAGED: _set_managed,
}


def effective(facts: QueueFacts, message_bytes_max: int, arn: Arn) -> dict[str, str]:
    """Return all attributes of a queue that have a value, without its counts and times."""
    shown: dict[str, str | None] = {
        "VisibilityTimeout": str(facts.timeout_s),
        "DelaySeconds": str(facts.delay_s),
        "MaximumMessageSize": str(facts.message_bytes(message_bytes_max)),
        "MessageRetentionPeriod": None if facts.retention_s is None else str(facts.retention_s),
        WAIT: str(facts.wait_s),
        "QueueArn": arn(facts.name),
        _MANAGED: facts.text(_MANAGED) or "false",
        _POLICY: facts.text(_POLICY),
        _KEY: facts.text(_KEY),
    }
    if facts.text(_KEY):
        shown[_KEY_PERIOD] = facts.text(_KEY_PERIOD) or str(_KEY_PERIOD_S)
    if facts.dead_letters and facts.deliveries_max is not None:
        shown[_REDRIVE] = RedrivePolicy(facts.dead_letters, facts.deliveries_max).shown(arn)
    if (policy := facts.text(ALLOW_POLICY)) is not None:
        shown[ALLOW_POLICY] = AllowPolicy.of_kept(policy).shown(arn)
    if facts.is_fifo:
        shown[_FIFO_QUEUE] = "true"
        shown[CONTENT_BASED] = facts.text(CONTENT_BASED) or "false"
        shown[_SCOPE] = "messageGroup" if facts.is_deduplicated_by_group else "queue"
        shown[THROUGHPUT] = facts.text(THROUGHPUT) or _THROUGHPUTS[0]
    return {name: value for name, value in shown.items() if value is not None}


def first_difference(
    given: Mapping[str, str], changes: Changes, facts: QueueFacts, present: Mapping[str, str]
) -> str | None:
    """Return the first attribute that a client gives and that differs from that of an existing queue; None if none does."""
    for name, value in given.items():
        if not _is_same(name, value, changes, facts, present.get(name)):
            return name
    return None


def _is_same(name: str, value: str, changes: Changes, facts: QueueFacts, present: str | None) -> bool:
    if name == _REDRIVE:
        policy = changes.redrive
        wanted = (b"", None) if policy is None else (policy.target, policy.deliveries)
        return (facts.dead_letters, facts.deliveries_max) == wanted
    if name == ALLOW_POLICY:
        return allow_policy(value) == (None if facts.text(name) is None else AllowPolicy.of_kept(facts.text(name)))
    if name in (_POLICY, _KEY):
        return (present or "") == value
    return present == _canonical(value)


def _canonical(value: str) -> str:
    """Return a number or a flag in the form in which answers show it."""
    if _NUMBER.fullmatch(value):
        return str(int(value))
    return value.lower() if value.lower() in ("true", "false") else value


def requested(names: Iterable[str]) -> set[str] | None:
    """Return the attributes that a client asks for; None for all.

    Raises:
        SqsError: ``InvalidAttributeName``.
    """
    wanted = set(names)
    for name in wanted:
        if name != "All" and name not in _ALL:
            raise _unknown(name[:100])
    return None if "All" in wanted else wanted
