"""Requests to the SQS port as bytes, signed by botocore."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from unittest import mock

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

__all__ = ["signed"]


def signed(
    key: tuple[str, str],
    host: str,
    body: bytes,
    now_s: float,
    headers: Mapping[str, str] | None = None,
    action: str = "SendMessage",
) -> bytes:
    """Return a request with a signature of this time; a header ``HASH`` becomes the hash of the body."""
    fixed = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
    digest = hashlib.sha256(body).hexdigest()
    more = {name: digest if value == "HASH" else value for name, value in (headers or {}).items()}
    request = AWSRequest("POST", f"http://{host}/", headers=fixed | more, data=body)
    moment = datetime.fromtimestamp(now_s, UTC).replace(tzinfo=None)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment):
        SigV4Auth(Credentials(*key), "sqs", "us-east-1").add_auth(request)
    lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"POST / HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
