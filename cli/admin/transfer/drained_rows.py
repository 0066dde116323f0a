"""Lines of ``lmq-admin drain`` as messages to push again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from lmqcluster.client.options import PushOptions
from lmqcluster.wire.attributes import pack_attributes
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import CONTENT_TYPE

from ..queues.contents import content_bytes
from .queue_template import QueueTemplate
from .row_source import Stream
from .rows import BadRow, Row, numbered_lines

__all__ = ["drained_rows"]

_MSGPACK = CONTENT_TYPE.decode()


def drained_rows(stream: Stream, template: QueueTemplate | None) -> Iterator[Row | BadRow]:
    """Yield the messages of each line; each part of a compound message is one.

    Args:
        stream: the lines.
        template: names the queues by members of a line; None for the queues that were drained.

    Raises:
        CliError: a line is too long to continue after it.
    """
    for line, data in numbered_lines(stream):
        if not data.strip():
            continue
        try:
            yield from _rows(line, json.loads(data), template)
        except UnicodeError:
            yield BadRow(line, "not UTF-8")
        except json.JSONDecodeError as exc:
            yield BadRow(line, f"not JSON: {exc.msg} at column {exc.colno}")
        except LmqError as exc:
            yield BadRow(line, exc.message)
        except (ValueError, TypeError, KeyError, RecursionError) as exc:
            yield BadRow(line, f"not a message of drain: {exc!r}")


def _rows(line: int, record: Any, template: QueueTemplate | None) -> list[Row]:
    """Return the messages of a line, all of them or none."""
    queue = _bytes(record["queue"]) if template is None else template.name_of(record)
    options = {name: record[name] for name in ("priority", "label", "group") if name in record}
    if record["type"] == "normal":
        return [_row(line, queue, record, options | {"attributes": record.get("attributes")})]
    parts = record["content"]
    attributes = record.get("part_attributes") or [None] * len(parts)
    # The types of the parts are those of MessagePack values, because drain has the values.
    return [
        _row(line, queue, {"content": part, "content_type": _MSGPACK}, options | {"attributes": one})
        for part, one in zip(parts, attributes, strict=True)
    ]


def _row(line: int, queue: bytes, record: dict[str, Any], given: dict[str, Any]) -> Row:
    options: PushOptions = {}
    if given["attributes"]:
        options["attributes"] = {name: _plain(value) for name, value in given["attributes"].items()}
        pack_attributes(options["attributes"])
    if "priority" in given:
        options["priority"] = given["priority"]
    for name in ("label", "group"):
        if name in given:
            options[name] = _bytes(given[name])
    content_type = record.get("content_type", "")
    if content_type == _MSGPACK:
        return Row(line, queue, _plain(record["content"]), None, options)
    return Row(line, queue, _bytes(record["content"]), content_type, options)


def _plain(value: Any) -> Any:
    """Return a value with bytes in place of ``{"base64": ...}``."""
    if isinstance(value, dict):
        return content_bytes(value) if value.keys() == {"base64"} else {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str | dict):
        raise TypeError(f"{value!r} is no text")
    return content_bytes(value)
