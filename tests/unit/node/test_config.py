"""The configuration of a node: defaults, validation, and the forms of an address."""

from __future__ import annotations

import dataclasses

import pytest

from lmqcluster.node.config.config import OPTIONS, Address, NodeConfig
from lmqcluster.node.config.config_error import ConfigError

SECRET = "sixteen bytes ok"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9980", ("127.0.0.1", 9980)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("a-host.example:0", ("a-host.example", 0)),
        (" :80 ", ("", 80)),
    ],
)
def test_address_is_parsed(text: str, address: tuple[str, int]) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize(
    "text", ["", "host", "host:", "host:65536", "host:-1", "host:٣", "::1:80", "a b:1", "http://h:1", "u@h:1"]
)
def test_bad_address_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"not|brackets"):
        Address.parse(text)


def test_address_prints_as_it_is_parsed() -> None:
    for text in ("127.0.0.1:9980", "[::1]:80", "host:1"):
        assert str(Address.parse(text)) == text


def test_defaults_are_the_contracts_ports_on_loopback() -> None:
    config = NodeConfig()
    assert (config.http, config.rpc, config.raft) == (
        ("127.0.0.1", 9980),
        ("127.0.0.1", 18800),
        ("127.0.0.1", 19980),
    )
    assert config.durability == "disk"
    assert config.members() == (Address("127.0.0.1", 19980),)


def test_every_option_is_documented() -> None:
    for option in OPTIONS:
        assert option.help.endswith(".")
        assert option.extremes.endswith(".")
        assert option.default


def test_advertised_raft_defaults_to_the_listening_address() -> None:
    assert NodeConfig(raft=Address("127.0.0.1", 7)).advertise_raft == ("127.0.0.1", 7)


def test_own_address_may_be_among_the_peers_or_not() -> None:
    peers = (Address("127.0.0.1", 1), Address("127.0.0.1", 2))
    assert (
        NodeConfig(raft=peers[0], peers=peers).members()
        == NodeConfig(raft=peers[0], peers=peers[1:]).members()
        == peers
    )


def test_wildcard_addresses_are_advertised_under_the_raft_host() -> None:
    config = NodeConfig(
        http=Address("0.0.0.0", 9980),
        raft=Address("0.0.0.0", 5),
        advertise_raft=Address("10.1.1.1", 5),
        cluster_secret=SECRET,
    )
    assert config.http is not None
    assert config.advertised(config.http) == ("10.1.1.1", 9980)
    assert config.advertised(Address("10.2.2.2", 1)) == ("10.2.2.2", 1)


BEYOND = Address("10.0.0.1", 19980)


@pytest.mark.parametrize(
    ("values", "option"),
    [
        ({"raft": BEYOND}, "raft"),
        ({"advertise_raft": BEYOND}, "advertise_raft"),
        ({"peers": (BEYOND,)}, "peers"),
        ({"raft": Address("0.0.0.0", 19980), "advertise_raft": Address("127.0.0.1", 19980)}, "raft"),
        ({"raft": Address("some-host", 19980)}, "raft"),
    ],
)
def test_raft_beyond_loopback_needs_a_secret(values: dict, option: str) -> None:
    with pytest.raises(ConfigError, match=f"^{option} .*LMQ_CLUSTER_SECRET"):
        NodeConfig(**values)
    assert NodeConfig(**values, cluster_secret=SECRET).cluster_secret == SECRET


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"http": None, "rpc": None}, "http and rpc are both off"),
        ({"rpc": Address("127.0.0.1", 9980)}, "rpc 127.0.0.1:9980 collides with http"),
        ({"rpc": Address("0.0.0.0", 9980)}, "collides"),
        ({"raft": Address("127.0.0.1", 0)}, "raft .* port 0"),
        ({"raft": Address("0.0.0.0", 1)}, "advertise_raft is needed"),
        ({"raft": None, "peers": (Address("127.0.0.1", 1),)}, "peers is given but raft is off"),
        ({"raft": None, "advertise_raft": Address("127.0.0.1", 1)}, "advertise_raft is given but raft is off"),
        ({"peers": (Address("127.0.0.1", 1),) * 2}, "peers names an address twice"),
        ({"peers": (Address("0.0.0.0", 1),)}, "peers 0.0.0.0:1 is not an address"),
        ({"message_bytes_max": 0}, "message_bytes_max must be 1"),
        ({"message_bytes_max": (64 << 20) + 1}, "message_bytes_max must be"),
        ({"memory_bytes_max": 1}, "memory_bytes_max must be at least 64MiB"),
        ({"cluster_secret": "short"}, "cluster_secret must have at least 16 bytes"),
        ({"name": "x" * 101}, "name must be"),
        ({"name": "two\nlines"}, "name must be"),
    ],
)
def test_impossible_values_are_refused(values: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        NodeConfig(**values)
    assert caught.value.exit_code == 78


def test_free_ports_do_not_collide() -> None:
    NodeConfig(http=Address("127.0.0.1", 0), rpc=Address("127.0.0.1", 0))


def test_raft_may_be_off() -> None:
    assert NodeConfig(raft=None).members() == ()


def test_config_is_frozen_and_hides_the_secret() -> None:
    config = NodeConfig(cluster_secret=SECRET)
    assert SECRET not in repr(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.name = "other"  # type: ignore[misc]
