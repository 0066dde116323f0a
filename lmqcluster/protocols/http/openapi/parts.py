"""Common parts of the route descriptions in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from ....node.access.consumers import PAGE_MAX

__all__ = ["KEY", "NAME", "NAME_VALUE", "PAGE", "PROBLEM", "TRACE", "Json", "operation", "query"]

Json = dict[str, Any]

_MEDIA: Final = ("application/json", "application/x-msgpack")
_SUMMARY_SUCCESS: Final = "Done"


def _ref(name: str) -> Json:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


PROBLEM: Final[Json] = {"application/problem+json": {"schema": _ref("Problem")}}
"""Content of the answer to a request that was refused or failed."""


def _content(schema: str) -> Json:
    return {media: {"schema": _ref(schema)} for media in _MEDIA}


def _answers(schema: str | None, *, not_found: bool = False) -> Json:
    done: Json = {"description": _SUMMARY_SUCCESS}
    if schema is not None:
        done["content"] = _content(schema)
    answers: Json = {
        "200" if schema else "204": done,
        "503": {
            "description": "No quorum, or the node cannot serve the request now. Try again after the time in Retry-After.",
            "headers": {"retry-after": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}},
            "content": PROBLEM,
        },
        "default": {"description": "The request was refused or failed", "content": PROBLEM},
    }
    if not_found:
        answers["404"] = {"description": "There is no such queue", "content": PROBLEM}
    return answers


def operation(
    name: str,
    summary: str,
    answer: str | None,
    *,
    body: str | None = None,
    parameters: list[Json] | None = None,
    not_found: bool = False,
    body_required: bool = True,
) -> Json:
    """Return the description of one method of a route.

    Args:
        name: the operation's identifier.
        summary: the effect of the operation.
        answer: schema of the answer, None for one without a body.
        body: schema of the request's body.
        parameters: the parameters in addition to those of the path.
        not_found: whether it answers 404 for an unknown queue.
        body_required: whether the body is required.
    """
    described: Json = {
        "operationId": name,
        "summary": summary,
        "responses": _answers(answer, not_found=not_found),
    }
    if body is not None:
        described["requestBody"] = {"required": body_required, "content": _content(body)}
    if parameters:
        described["parameters"] = parameters
    return described


NAME: Final[Json] = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Queue name: 1 to 255 bytes, percent-encoded; + means a space, %2F a slash within the name.",
    "schema": {"type": "string", "minLength": 1},
}


def query(name: str, description: str, schema: Json) -> Json:
    """Return a query parameter."""
    return {"name": name, "in": "query", "description": description, "schema": schema}


NAME_VALUE: Final[Json] = {"$ref": "#/components/schemas/Content"}

PAGE: Final[list[Json]] = [
    query("offset", "How many rows to leave out.", {"type": "integer", "minimum": 0, "default": 0}),
    query("limit", "Most rows.", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": 100}),
]

_PARENT_TEXT: Final = (
    "The trace of the request (W3C Trace Context); an attribute of the pushed messages that have none in their attributes. "
    "A malformed value is ignored."
)
TRACE: Final[list[Json]] = [
    {"name": "traceparent", "in": "header", "description": _PARENT_TEXT, "schema": {"type": "string"}},
    {"name": "tracestate", "in": "header", "description": "Like traceparent.", "schema": {"type": "string"}},
]

KEY: Final[Json] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Makes a retry of this push safe for at least 5 minutes: a repetition stores nothing. In a queue with"
    " `key_window` the key counts for exactly that time, whatever the body.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
