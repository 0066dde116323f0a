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
