"""The changes that make a cluster match a file of definitions."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.properties import parse_properties, parse_rules

from ...shared.connection.api import Api
from ...shared.connection.target import queue_text
from ...shared.errors import CliError, ExitCode
from ...shared.output import plural
from .definition_file import Definitions, QueueDefinition, TokenDefinition, queue_name

__all__ = ["Change", "Secrets", "changes"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change.

    Attributes:
        text: the change, as it completes "would ...".
        make: makes the change.
    """

    text: str
    make: Callable[[Api], object]


class Secrets:
    """The file for the secrets of new tokens, readable by its owner only.

    Args:
        file: its name; None if no tokens are to be created.
    """

    def __init__(self, file: str | None) -> None:
        self.file = file
        self._is_made = False

    def check(self) -> None:
        """Refuse a file that exists, before anything is changed.

        Raises:
            CliError: the file exists.
        """
        if os.path.lexists(str(self.file)):
            raise CliError(f"{self.file} already exists; choose a new file for the secrets", ExitCode.CONFIGURATION)

    def add(self, name: str, *secrets: str) -> None:
        """Add the secrets of a token.

        Raises:
            CliError: the file already exists or cannot be written.
        """
        self.prepare()
        with open(str(self.file), "a", encoding="utf-8") as file:  # noqa: PTH123  created by prepare
            file.write("\t".join((name, *secrets)) + "\n")

    def prepare(self) -> None:
        """Create the file before there is a secret that could be lost. Raises the errors of `add`."""
        if self._is_made:
            return
        try:
            os.close(os.open(str(self.file), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as exc:
            raise CliError(f"cannot create {self.file}: {exc.strerror}", ExitCode.CONFIGURATION) from exc
        self._is_made = True


def changes(api: Api, wanted: Definitions, secrets: Secrets) -> tuple[list[Change], list[str]]:
    """Return the changes in an order in which they can be made, and remarks about what cannot be changed."""
    todo: list[Change] = []
    if wanted.default_properties is not None:
        todo += _rules(api.get("/properties"), wanted.default_properties)
    for queue in wanted.queues:
        todo += _queue(api, queue)
    remarks: list[str] = []
    if wanted.tokens:
        # Tokens come last: once the first token exists, every client needs one.
        todo += _tokens(api.get("/v1/tokens")["tokens"], wanted.tokens, secrets, remarks)
    return todo, remarks


def _rules(now: list[Any], then: list[Any]) -> Iterator[Change]:
    if parse_rules(now) != parse_rules(then):
        text = f"replace the default properties, {plural(len(now), 'rule')}, with {plural(len(then), 'rule')}"
        yield Change(text, lambda api: api.put("/properties", then))


def _queue(api: Api, wanted: QueueDefinition) -> Iterator[Change]:
    path, shown = f"/v1/queues/{Api.segment(queue_name(wanted.name))}", queue_text(wanted.name)
    try:
        found = api.get(path)
    except LmqError as exc:
        if exc.code != "queue_not_found":
            raise
        text = f"create queue {shown}" + (f" with {_words(wanted.properties)}" if wanted.properties else "")
        yield Change(text, lambda api: _set_properties(api, path, wanted.properties, clear=not wanted.properties))
        found = {"own_properties": wanted.properties, "annotations": {}, "suspended": False}
    before, after = dict(parse_properties(found["own_properties"])), dict(parse_properties(wanted.properties))
    if before != after:
        # The API cannot remove a single property.
        clear = not before.keys() <= after.keys()
        text = f"change the properties of queue {shown} from {_words(found['own_properties'])} to {_words(wanted.properties)}"
        yield Change(text, lambda api: _set_properties(api, path, wanted.properties, clear=clear))
    if wanted.annotations not in (None, found["annotations"]):
        annotations = {**dict.fromkeys(found["annotations"]), **(wanted.annotations or {})}
        text = f"set the annotations of queue {shown} to {_words(wanted.annotations or {})}"
        yield Change(text, lambda api: api.patch(f"{path}/properties", {"annotations": annotations}))
    if found["suspended"] != wanted.suspended:
        verb = "suspend" if wanted.suspended else "resume"
        yield Change(f"{verb} queue {shown}", lambda api: api.post(f"{path}/{verb}", {}))
    if wanted.bindings is not None:
        yield from _bindings(api, path, shown, wanted.bindings)


def _bindings(api: Api, path: str, shown: str, wanted: list[Any]) -> Iterator[Change]:
    found = api.get(f"{path}/bindings")["targets"]
    for target in wanted:
        if target not in found:
            text = f"bind queue {shown}: {queue_text(target)} gets copies of messages pushed to it"
            yield Change(text, partial(_post_binding, path=f"{path}/bind", target=target))
    for target in found:
        if target not in wanted:
            text = f"unbind queue {shown}: {queue_text(target)} no longer gets copies of messages pushed to it"
            yield Change(text, partial(_post_binding, path=f"{path}/unbind", target=target))


def _post_binding(api: Api, *, path: str, target: Any) -> None:
    api.post(path, {"target": target})


def _set_properties(api: Api, path: str, properties: Mapping[str, Any], *, clear: bool) -> None:
    if clear:
        api.delete(f"{path}/properties")
    if properties:
        api.patch(f"{path}/properties", properties)


def _words(properties: Mapping[str, Any]) -> str:
    words = (
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {json.dumps(value, ensure_ascii=False)}"
        for key, value in properties.items()
    )
    return ", ".join(words) or "none"


def _tokens(
    now: list[dict[str, Any]], then: list[TokenDefinition], secrets: Secrets, remarks: list[str]
) -> Iterator[Change]:
    known = {one["name"]: one for one in now}
    missing = [one for one in then if one.name not in known]
    for one in then:
        found = known.get(one.name)
        if found is None:
            continue
        wanted = (one.role, one.queues, one.principal or found["principal"], one.sqs)
        if (found["role"], found["queues"], found["principal"], found["sqs"]) != wanted:
            remarks.append(
                f"token {one.name} differs in role, principal, queues or port; it is not changed, because its secret would change"
            )
    expired = [one for one in missing if one.expires_at is not None and one.expires_at <= time.time()]
    missing = [one for one in missing if one not in expired]
    if missing and secrets.file is None:
        names = ", ".join(one.name for one in missing)
        remarks.append(f"missing tokens are created only with --new-tokens FILE: {names}")
        return
    if missing:
        secrets.check()
    if missing and not known:
        # The first token must be able to create the others.
        missing.sort(key=lambda one: (one.role, one.queues, one.expires_at) != ("admin", ".*", None))
    for one in missing:
        whose = "" if one.principal is None else f" of principal {one.principal}"
        yield Change(
            f"create token {one.name}{whose} for {one.queues} with role {one.role} and a new secret",
            partial(_make_token, wanted=one, secrets=secrets, is_first=not known),
        )


def _make_token(api: Api, *, wanted: TokenDefinition, secrets: Secrets, is_first: bool) -> None:
    secrets.prepare()
    lifetime_s = None if wanted.expires_at is None else max(1.0, wanted.expires_at - time.time())
    request = {
        "name": wanted.name,
        "role": wanted.role,
        "queues": wanted.queues,
        "lifetime": lifetime_s,
        "sqs": wanted.sqs,
    }
    if wanted.principal is not None:
        request["principal"] = wanted.principal
    made = api.post("/v1/tokens", request)
    secret = made["token"]
    secrets.add(wanted.name, secret, *([made["secret_access_key"]] if wanted.sqs else []))
    if is_first and (wanted.role, wanted.queues) == ("admin", ".*"):
        # From now on every request needs a token.
        api.show_token(secret)
