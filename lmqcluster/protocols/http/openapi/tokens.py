"""Routes of access control in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["SECURITY_SCHEMES", "TOKEN_PATHS", "TOKEN_SCHEMAS"]

Json = dict[str, Any]

SECURITY_SCHEMES: Final[Json] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "Not needed by clients on a node's own machine as long as the cluster has no tokens.",
    }
}

_ROLE: Final[Json] = {"type": "string", "enum": ["read", "write", "admin"]}
_QUEUES: Final[Json] = {
    "type": "string",
    "description": "Regular expression that is searched for in queue names; .* for all queues.",
}
_PRINCIPAL: Final[Json] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 100,
    "description": "Owner of what the token's clients leave at the cluster, which other tokens may have too.",
}

TOKEN_SCHEMAS: Final[Json] = {
    "NewToken": {
        "type": "object",
        "required": ["name", "role"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 100},
            "role": _ROLE,
            "queues": _QUEUES,
            "lifetime": {"type": ["number", "null"], "minimum": 1, "description": "Seconds; null: it does not expire."},
            "principal": {
                **_PRINCIPAL,
                "type": ["string", "null"],
                "description": "A new principal, or one to share; null: a new one with the name of the token.",
            },
            "sqs": {
                "type": "boolean",
                "default": False,
                "description": "Whether its clients may sign requests to the SQS port.",
            },
        },
    },
    "TokenSecret": {
        "type": "object",
        "description": "The only place where the secret is ever shown.",
        "required": ["name", "role", "queues", "principal", "token"],
        "properties": {
            "name": {"type": "string"},
            "role": _ROLE,
            "queues": _QUEUES,
            "principal": _PRINCIPAL,
            "token": {"type": "string", "pattern": "^lmq_[A-Za-z0-9_-]{43}$"},
            "secret_access_key": {
                "type": "string",
                "pattern": "^[A-Za-z0-9_-]{43}$",
                "description": "For the SQS port, if the token is for it; the access key ID is the name.",
            },
        },
    },
    "Tokens": {
        "type": "object",
        "required": ["tokens"],
        "properties": {
            "tokens": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/TokenRow"},
            }
        },
    },
    "TokenRow": {
        "type": "object",
        "required": ["name", "role", "queues", "principal", "created_at", "expires_at", "expired", "sqs"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "role": _ROLE,
            "queues": _QUEUES,
            "principal": _PRINCIPAL,
            "created_at": {"type": "number", "description": "Seconds since 1970."},
            "expires_at": {"type": ["number", "null"]},
            "expired": {"type": "boolean"},
            "sqs": {"type": "boolean", "description": "Whether it is for the SQS port too."},
        },
    },
    "Access": {
        "type": "object",
        "required": ["name", "role", "queues", "principal", "required"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "description": "Of the token; local without one."},
            "role": _ROLE,
            "queues": _QUEUES,
            "principal": {
                "type": "string",
                "description": "Owner of what the client leaves; empty if it needs no token.",
            },
            "required": {"type": "boolean", "description": "Whether everybody needs a token."},
        },
    },
}


def _content(schema: str) -> Json:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {media: {"schema": reference} for media in ("application/json", "application/x-msgpack")}


def _operation(name: str, summary: str, schema: str | None, body: str | None = None) -> Json:
    done: Json = {"description": "Done"}
    if schema is not None:
        done["content"] = _content(schema)
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    operation: Json = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200" if schema else "204": done,
            "default": {"description": "The request was refused or failed", "content": problem},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _content(body)}
    return operation


_NAME: Final[Json] = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Name of a token.",
    "schema": {"type": "string", "minLength": 1},
}

TOKEN_PATHS: Final[Json] = {
    "/v1/tokens": {
        "get": _operation("listTokens", "All tokens by name, without their secrets", "Tokens"),
        "post": _operation("createToken", "Make a token", "TokenSecret", body="NewToken"),
    },
    "/v1/tokens/{name}": {
        "parameters": [_NAME],
        "delete": _operation("deleteToken", "Delete a token; its users are refused from then on", None),
    },
    "/v1/access": {"get": _operation("getAccess", "What the client that asks may do", "Access")},
}
