"""Attributes of messages on the command line and in tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from ..queues.contents import content_json

__all__ = ["NAMED_VALUE", "attribute_text", "filter_text"]


class _NamedValue(click.ParamType[tuple[str, Any]]):
    """``NAME=VALUE`` for a string, ``NAME:=VALUE`` for a number; the result is the name and the API's JSON of the value."""

    name = "attribute"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Return the name and the value."""
        name, equals, text = value.partition("=")
        is_number = name.endswith(":")
        name = name.removesuffix(":") if is_number else name
        if not name or not equals:
            self.fail(f"{value!r} is neither NAME=VALUE nor NAME:=NUMBER", param, ctx)
        if not is_number:
            return name, content_json(text.encode(errors="surrogateescape"))
        try:
            number = json.loads(text)
        except ValueError:
            number = None
        # Python's parser accepts NaN and infinities, which are no JSON.
        if type(number) not in {int, float} or number * 0 != 0:
            self.fail(f"{text!r} is not a number", param, ctx)
        return name, number


NAMED_VALUE = _NamedValue()


def attribute_text(attributes: Mapping[str, Any]) -> str:
    """Return the attributes of a message in one line; binary values are Base64."""
    return ", ".join(f"{name}={_text(value)}" for name, value in attributes.items())


def filter_text(named: tuple[str, Any]) -> str:
    """Return the name and the value by which the API selects messages."""
    return f"{named[0]}={_text(named[1])}"


def _text(value: Any) -> str:
    return str(value["base64"]) if isinstance(value, dict) else str(value)
