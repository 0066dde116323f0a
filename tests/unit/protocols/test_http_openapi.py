"""The OpenAPI document: well formed, complete, and without dangling references."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from lmqcluster.protocols.http.openapi.document import build, document
from lmqcluster.wire.errors import ERRORS
from tests.docs import openapi

DOCUMENT = build()
METHODS = {"get", "post", "put", "patch", "delete"}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS & item.keys():
            yield path, method, item[method]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_served_bytes_are_the_document() -> None:
    assert json.loads(document()) == DOCUMENT
    assert DOCUMENT["openapi"].startswith("3.1.")


def test_every_reference_resolves() -> None:
    for reference in references(DOCUMENT):
        prefix, name = reference.rsplit("/", 1)
        assert prefix == "#/components/schemas"
        assert name in DOCUMENT["components"]["schemas"]


@pytest.mark.parametrize("name", sorted(DOCUMENT["components"]["schemas"]))
def test_every_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(DOCUMENT["components"]["schemas"][name])


def test_every_path_variable_is_declared() -> None:
    for path, _method, operation in operations():
        declared = operation.get("parameters", []) + DOCUMENT["paths"][path].get("parameters", [])
        names = {parameter["name"] for parameter in declared if parameter["in"] == "path"}
        assert names == set(re.findall(r"{(\w+)}", path)), path


def test_operation_names_are_unique_and_answers_described() -> None:
    names = [operation["operationId"] for _path, _method, operation in operations()]
    assert len(set(names)) == len(names)
    for path, method, operation in operations():
        for answer in operation["responses"].values():
            assert answer["description"], (path, method)


def test_problem_codes_cover_all_errors() -> None:
    assert set(ERRORS) <= set(DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["enum"])


def schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Every schema of the document, in components, parameters, headers and contents."""
    if isinstance(value, list):
        for item in value:
            yield from schemas(item)
    elif isinstance(value, dict):
        if value.keys() & {"enum", "const", "$ref", "oneOf", "anyOf", "items"} or isinstance(
            value.get("type"), str | list
        ):
            yield value
        for item in value.values():
            yield from schemas(item)


def test_the_file_of_the_documentation_is_the_document() -> None:
    stale = "docs/openapi.json is not what a node serves: run python -m tests.docs.openapi"
    assert openapi.FILE.read_text(encoding="utf-8") == openapi.text(), stale


def test_every_value_has_a_type_that_generators_know() -> None:
    for schema in schemas(DOCUMENT):
        types = schema.get("type")
        if "enum" in schema or "const" in schema:
            assert types is not None, schema
        if "items" in schema:
            assert isinstance(schema["items"], dict), schema
        # A number without a format is one of 32 bits for most generators: too few for times and sequences.
        if types in ("integer", "number"):
            assert schema["format"] in ("int32", "int64", "double"), schema


def test_every_object_with_members_has_a_name() -> None:
    named = [id(schema) for schema in DOCUMENT["components"]["schemas"].values()]
    flows = {"type", "scheme"}
    for schema in schemas(DOCUMENT):
        if schema.get("type") == "object" and "properties" in schema:
            assert id(schema) in named, schema.keys() - flows


def test_every_operation_describes_its_refusals() -> None:
    for path, method, operation in operations():
        if operation.get("security") == []:
            continue
        refusal = operation["responses"]["default"]
        of_lmq = not path.startswith(("/v1/", "/metrics", "/stats.", "/openapi"))
        assert ("x-lmq-error" in refusal.get("headers", {})) == of_lmq, (path, method)
        assert ("application/problem+json" in refusal.get("content", {})) != of_lmq, (path, method)
