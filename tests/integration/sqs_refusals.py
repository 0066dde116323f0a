"""Requests that the SQS port refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .refusal_target import Data, Kind, Send, Target, exchange

__all__ = ["sqs_kinds"]

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def _send(body: Data, headers: Mapping[str, str], host: str = "") -> Send:
    def send(target: Target, says: bytes) -> bytes:
        data = body(target)
        fields = {"Content-Length": str(len(data)), "Connection": "close", **headers}
        lines = ["POST / HTTP/1.1", f"Host: {host or target.addresses['sqs']}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return exchange(target.addresses["sqs"], "\r\n".join(lines).encode() + b"\r\n\r\n" + data, says)

    return send


def _json(action: str, members: Mapping[str, Any], host: str = "", *, cut: int = 0) -> Send:
    def body(target: Target) -> bytes:
        text = "x" * target.size
        given = {name: text if value is ... else value for name, value in members.items()}
        data = json.dumps(given).encode()
        return data[: len(data) - cut]

    return _send(body, {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}, host)


def _form(text: str) -> Send:
    return _send(lambda target: (text + "x" * target.size).encode(), FORM)


def sqs_kinds() -> Iterator[Kind]:
    """Yield the requests."""
    push = {"QueueUrl": "parent", "MessageBody": ...}
    entries = [{"Id": "a", "MessageBody": "x"}, {"Id": "a", "MessageBody": "y"}]
    for name, send, says in (
        ("full", _json("SendMessage", {**push, "QueueUrl": "full"}), b"OverLimit"),
        ("too large", _json("SendMessage", {**push, "QueueUrl": "small"}), b"InvalidParameterValue"),
        ("no JSON", _json("SendMessage", push, cut=1), b"SerializationException"),
        ("a wrong type", _json("SendMessage", {**push, "QueueUrl": 1}), b"SerializationException"),
        ("a bad character", _json("SendMessage", {**push, "MessageGroupId": "a b"}), b"InvalidParameterValue"),
        ("no queue", _json("SendMessage", {**push, "QueueUrl": "no-such-queue"}), b"NonExistentQueue"),
        ("repeated ids", _json("SendMessageBatch", {**push, "Entries": entries}), b"BatchEntryIdsNotDistinct"),
        ("an unknown action", _json("Sing", push), b"UnknownOperationException"),
        ("another host", _json("SendMessage", push, "evil.example"), b" 421 "),
        (
            "a bad receipt",
            _json("DeleteMessage", {"QueueUrl": "parent", "ReceiptHandle": ...}),
            b"ReceiptHandleIsInvalid",
        ),
        ("a bad page", _json("ListQueues", {"NextToken": ...}), b"InvalidParameterValue"),
        ("no form", _send(lambda target: b"x" * target.size, {}), b" 404 "),
        ("a form without a queue", _form("Action=SendMessage&MessageBody="), b"MissingParameter"),
        (
            "a form with a bad number",
            _form("Action=ReceiveMessage&QueueUrl=parent&WaitTimeSeconds="),
            b"InvalidParameterValue",
        ),
        ("a form that is no text", _form("Action=SendMessage&QueueUrl=%ff&MessageBody="), b"SerializationException"),
    ):
        yield Kind("sqs", name, send, says)
