"""Addresses of nodes as users write them."""

from __future__ import annotations

import pytest
from lmqcluster_cli.shared.connection.node_address import node_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("q1:9990", "q1:9990"),
        ("q1", "q1:9980"),
        ("10.0.0.1", "10.0.0.1:9980"),
        ("localhost", "127.0.0.1:9980"),
        ("[::1]", "[::1]:9980"),
        ("[::1]:9990", "[::1]:9990"),
        ("http://q1/console/", "q1:9980"),
    ],
)
def test_the_port_may_be_omitted(text: str, address: str) -> None:
    assert node_address(text) == address


@pytest.mark.parametrize("text", ["", "q1:", "q1:x", ":9980x", "::1", "ftp://q1", "q1:70000", "a b"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|is not|host name|in brackets"):
        node_address(text)
