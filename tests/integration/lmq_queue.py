"""One queue of one node, as a client of LMQ sees it."""

from __future__ import annotations

from .cluster import NodeProcess
from .raw_http import Answer, Connection, call

__all__ = ["Queue"]


class Queue:
    """One queue of one node through LMQ's routes, with one connection per request."""

    def __init__(self, node: NodeProcess, name: str) -> None:
        self.node = node
        self.name = name

    def push(self, body: bytes | None = b"x", *, query: str = "", **headers: str) -> Answer:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = call(self.node.http, "POST", f"/messages/{self.name}{query}", body, names)
        assert answer.status == 200
        return answer

    def pull(self, query: str = "t=0") -> Answer:
        return call(self.node.http, "GET", f"/messages/{self.name}?{query}")

    def reply(self, message: Answer | str, kind: str) -> int:
        identifier = message if isinstance(message, str) else message["x-lmq-message-id"].decode()
        return call(self.node.http, "POST", f"/messages/{self.name}/{identifier}?reply={kind}").status

    def set(self, json: str) -> None:
        headers = {"Content-Type": "application/json"}
        assert call(self.node.http, "PATCH", f"/properties/{self.name}", json.encode(), headers).status == 204

    def size(self) -> int | None:
        queue = call(self.node.http, "GET", "/stats").json["queues"].get(self.name)
        return None if queue is None else int(queue["size"])

    def drain(self) -> list[bytes]:
        bodies = []
        with Connection(self.node.http) as connection:
            while (answer := connection.call("GET", f"/messages/{self.name}?t=0")).status == 200:
                bodies.append(answer.body)
        return bodies
