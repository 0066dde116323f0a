"""The file of definitions: the configuration of a cluster's queues as JSON, validated before any of it is applied."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.limits import NAME_BYTES_MAX
from lmqcluster.wire.properties import parse_annotations, parse_properties, parse_rules

from ...shared.errors import CliError, ExitCode

__all__ = ["FILE_BYTES_MAX", "Definitions", "QueueDefinition", "TokenDefinition", "parse_definitions", "queue_name"]

FORMAT: Final = "lmqcluster definitions"
VERSION: Final = 1
FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_FIELDS: Final = {"format", "version", "default_properties", "queues", "tokens"}
_QUEUE_FIELDS: Final = {"name", "properties", "annotations", "suspended", "bindings"}
_TOKEN_FIELDS: Final = {"name", "role", "queues", "expires_at", "principal", "sqs"}
_ROLES: Final = ("read", "write", "admin")


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue with its own properties, annotations or bindings, or a suspended one.

    Attributes:
        name: as in the API: a string, or an object with ``base64``.
        annotations: texts that are kept with it; None if the file does not specify them.
        bindings: names of the queues that get copies of pushed messages; None if the file does not specify them.
    """

    name: Any
    properties: dict[str, Any]
    suspended: bool
    bindings: list[Any] | None = None
    annotations: dict[str, str] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the entry of the file."""
        found = {"name": self.name, "properties": self.properties, "suspended": self.suspended}
        more = {"bindings": self.bindings, "annotations": self.annotations}
        return {**found, **{key: value for key, value in more.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class TokenDefinition:
    """A token without its secret, which only its user knows.

    Attributes:
        expires_at: Unix time in seconds; None for never.
        principal: owner of the state that its clients create at the cluster; None for the token's own.
        sqs: whether it is for the SQS port too.
    """

    name: str
    role: str
    queues: str
    expires_at: float | None
    principal: str | None = None
    sqs: bool = False


@dataclass(frozen=True, slots=True)
class Definitions:
    """The content of a file of definitions.

    Attributes:
        default_properties: the rules; None if the file does not specify them.
    """

    default_properties: list[Any] | None = None
    queues: list[QueueDefinition] = field(default_factory=list)
    tokens: list[TokenDefinition] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "default_properties": self.default_properties,
            "queues": [one.as_json() for one in self.queues],
            "tokens": [
                {
                    "name": one.name,
                    "role": one.role,
                    "queues": one.queues,
                    "expires_at": one.expires_at,
                    "principal": one.principal,
                    **({"sqs": True} if one.sqs else {}),
                }
                for one in self.tokens
            ],
        }


def queue_name(name: Any) -> str:
    """Return a queue's name in the form of a command-line argument.

    Raises:
        ValueError: it is not a valid name.
    """
    if isinstance(name, dict) and name.keys() == {"base64"} and isinstance(name["base64"], str):
        try:
            data = base64.b64decode(name["base64"], validate=True)
        except binascii.Error as exc:
            raise ValueError(f"{name['base64']!r} is not Base64") from exc
    elif isinstance(name, str):
        data = name.encode()
    else:
        raise ValueError("the name of a queue must be a string, or an object with base64")
    if not 0 < len(data) <= NAME_BYTES_MAX:
        raise ValueError(f"the name of a queue has 1 to {NAME_BYTES_MAX} bytes, not {len(data)}")
    return data.decode(errors="surrogateescape")


def parse_definitions(where: str, data: bytes) -> Definitions:
    """Parse a file of definitions.

    Args:
        where: name of the file in errors.
        data: its content.

    Raises:
        CliError: it is not a file of definitions, has another version, or is invalid.
    """
    if len(data) > FILE_BYTES_MAX:
        raise CliError(f"{where} has more than {FILE_BYTES_MAX // 1024**2} MiB", ExitCode.BAD_DATA)
    try:
        return _definitions(json.loads(data))
    except RecursionError as exc:
        raise CliError(f"{where} is nested too deeply", ExitCode.BAD_DATA) from exc
    except LmqError as exc:
        raise CliError(f"{where}: {exc.message}", ExitCode.BAD_DATA) from exc
    except ValueError as exc:
        # Includes bytes that are not UTF-8 or not JSON.
        raise CliError(f"{where}: {exc}", ExitCode.BAD_DATA) from exc


def _definitions(value: Any) -> Definitions:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError(f'not a file of definitions: "format" must be "{FORMAT}"')
    if value.get("version") != VERSION or isinstance(value["version"], bool):
        raise ValueError(f"version {value.get('version')!r} is not supported; this program reads version {VERSION}")
    _check_fields("the file", value, _FIELDS)
    rules = value.get("default_properties")
    if rules is not None:
        parse_rules(rules)
    queues = [_queue(one) for one in _list(value, "queues")]
    tokens = [_token(one) for one in _list(value, "tokens")]
    _check_once("queue", [queue_name(one.name) for one in queues])
    _check_once("token", [one.name for one in tokens])
    return Definitions(rules, queues, tokens)


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key, [])
    if not isinstance(found, list):
        raise ValueError(f'"{key}" must be a list')
    return found


def _check_fields(what: str, value: Any, fields: set[str]) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object")
    unknown = sorted(value.keys() - fields)
    if unknown:
        raise ValueError(
            f"{what} has an unknown member {unknown[0][:40]!r}; the members are {', '.join(sorted(fields))}"
        )


def _check_once(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name[:80]!r} appears twice")
        seen.add(name)


def _queue(value: Any) -> QueueDefinition:
    _check_fields("a queue", value, _QUEUE_FIELDS)
    name = queue_name(value.get("name"))
    properties, suspended = value.get("properties", {}), value.get("suspended", False)
    if not isinstance(suspended, bool):
        raise ValueError(f"queue {name[:80]!r}: suspended must be true or false")
    annotations = value.get("annotations")
    try:
        parse_properties(properties)
        texts = None if annotations is None else parse_annotations(annotations)
    except LmqError as exc:
        raise ValueError(f"queue {name[:80]!r}: {exc.message}") from exc
    if texts is not None and None in texts.values():
        raise ValueError(f"queue {name[:80]!r}: an annotation must be a string")
    return QueueDefinition(value["name"], properties, suspended, _bindings(name, value.get("bindings")), annotations)


def _bindings(name: str, targets: Any) -> list[Any] | None:
    if targets is None:
        return None
    if not isinstance(targets, list):
        raise ValueError(f'queue {name[:80]!r}: "bindings" must be a list')
    _check_once(f"queue {name[:80]!r}: the binding to", [queue_name(one) for one in targets])
    return targets


def _token(value: Any) -> TokenDefinition:
    _check_fields("a token", value, _TOKEN_FIELDS)
    name, role, queues = value.get("name"), value.get("role"), value.get("queues", ".*")
    expires_at, principal = value.get("expires_at"), value.get("principal")
    if not isinstance(name, str) or not name or not isinstance(queues, str):
        raise ValueError("a token must have a name and queues, which are strings")
    if not isinstance(principal, (str, type(None))):
        raise ValueError(f"token {name[:80]!r}: principal must be a string or null")
    if role not in _ROLES:
        raise ValueError(f"token {name[:80]!r}: role must be one of {', '.join(_ROLES)}")
    if expires_at is not None and (isinstance(expires_at, bool) or not isinstance(expires_at, (int, float))):
        raise ValueError(f"token {name[:80]!r}: expires_at must be a Unix time or null")
    sqs = value.get("sqs", False)
    if not isinstance(sqs, bool):
        raise ValueError(f"token {name[:80]!r}: sqs must be true or false")
    return TokenDefinition(name, role, queues, expires_at, principal, sqs)
