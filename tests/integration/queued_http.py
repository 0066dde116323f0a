"""A small client of the port for queued's clients, in both formats."""

from __future__ import annotations

import http.client
import json
from typing import Any

import msgpack

__all__ = ["Answer", "QueuedHttp"]


class Answer:
    """An answer: status, headers with lower-case names, body as bytes and decoded."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def value(self) -> Any:
        kind = self.headers.get("content-type", "")
        return msgpack.unpackb(self.body) if "msgpack" in kind else json.loads(self.body)

    def __repr__(self) -> str:
        return f"<{self.status} {self.body[:200]!r}>"


class QueuedHttp:
    """Sends requests to one node; `media` is ``json`` or ``msgpack``."""

    def __init__(self, address: str, media: str = "json", headers: dict[str, str] | None = None) -> None:
        self.address = address
        self.media = media
        self.headers = headers or {}

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        sent = dict(self.headers)
        data: bytes | None = None
        if isinstance(body, bytes):
            data = body
        elif body is not None:
            data = json.dumps(body).encode() if self.media == "json" else msgpack.packb(body)
        sent["Content-Type"] = f"application/{self.media}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, path, body=data, headers=sent)
            answer = connection.getresponse()
            got = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, got, answer.read())
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Return the decoded body of an answer that must be 200."""
        answer = self(method, path, body, **headers)
        assert answer.status == 200, answer
        return answer.value

    def push(self, queue: str, *contents: Any, delay: int = 0) -> list[int]:
        messages = [{"contents": one, "visibility_timeout_secs": delay} for one in contents]
        return self.ok("POST", f"/queue/{queue}/messages/push", {"messages": messages})["ids"]

    def poll(self, queue: str, count: int = 10, hide: int = 30, **more: Any) -> list[dict[str, Any]]:
        body = {"count": count, "visibility_timeout_secs": hide, **more}
        return self.ok("POST", f"/queue/{queue}/messages/poll", body)["messages"]

    def delete(self, queue: str, *messages: dict[str, Any], **more: Any) -> Any:
        named = [{"id": one["id"], "poll_tag": one["poll_tag"]} for one in messages]
        return self.ok("POST", f"/queue/{queue}/messages/delete", {"messages": named, **more})
