"""A port in use is reported before anything starts."""

from __future__ import annotations

import socket

import pytest
from lmqcluster_cli.lmq.ports import check_free

from lmqcluster.node.config.config import ConfigError
from lmqcluster.wire.address import Address


def test_a_free_port_passes() -> None:
    check_free(Address("127.0.0.1", 0), "http", "choose another")


def test_a_port_in_use_is_refused_with_its_purpose() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
        with pytest.raises(ConfigError, match=rf"{address} \(http\): Address already in use.*, or choose another"):
            check_free(address, "http", "choose another")


@pytest.mark.parametrize(
    "address", [Address("192.0.2.1", 5), Address("127.0.0.1", 70_000), Address("no.such.invalid", 1)]
)
def test_an_address_that_is_not_of_this_machine_is_refused(address: Address) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        check_free(address, "http", "choose another")
