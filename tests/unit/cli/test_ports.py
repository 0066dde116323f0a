"""A port in use is reported before anything starts."""

from __future__ import annotations

import errno
import socket

import pytest
from lmqcluster_cli.lmq.ports import check_free
from lmqcluster_cli.shared.errors import CliError

from lmqcluster.wire.address import Address


def test_a_free_port_passes() -> None:
    check_free(Address("127.0.0.1", 0), "http", "choose another")


def test_a_port_in_use_is_refused_with_its_purpose() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
        with pytest.raises(CliError, match=rf"{address} \(http\): Address already in use.*, or choose another"):
            check_free(address, "http", "choose another")


@pytest.mark.parametrize(
    ("address", "code", "remedy"),
    [
        (Address("192.0.2.1", 5000), 69, "does not have the address now: wait for it, or choose another"),
        (Address("no.such.invalid", 1), 69, "use a numeric address, or choose another"),
        (Address("127.0.0.1", 70_000), 78, "choose another"),
    ],
)
def test_an_address_that_cannot_be_bound_has_a_remedy(address: Address, code: int, remedy: str) -> None:
    with pytest.raises(CliError, match=f"cannot listen on .*{remedy}") as caught:
        check_free(address, "http", "choose another")
    assert caught.value.exit_code == code


def test_a_port_that_the_user_may_not_use_is_a_wrong_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real refusal depends on the user and the kernel's settings, so the error comes from here."""

    def refuse(_socket: socket.socket, _address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(CliError, match="CAP_NET_BIND_SERVICE") as caught:
        check_free(Address("127.0.0.1", 97), "http", "choose another")
    assert caught.value.exit_code == 78
