"""Tokens at a node: identities and permissions."""

from __future__ import annotations

import base64
import hmac
from pathlib import Path

import pytest

from lmqcluster.core import ApiKeys, Role, Token, Tokens
from lmqcluster.core.owners.quotas import Quotas
from lmqcluster.node.access.access import Access, Principal, digest_of, read_admin_token
from lmqcluster.node.access.sqs_keys import sqs_key
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.ports import Bounds, ConnectionLimiter, ConnectionSlot, Memory
from lmqcluster.ports.client import WRONG_SECRETS_PER_S, Client
from lmqcluster.replication.storage.io.disk import Folder
from lmqcluster.wire.address import is_loopback
from lmqcluster.wire.errors import LmqError

SECRET = b"lmq_secret-of-the-worker"


def tokens(*more: Token) -> Tokens:
    found = Tokens(compile_pattern, Quotas())
    for token in more:
        found.set(token, without_admin=True, joins=False)
    return found


def worker(expires_us: int = 0) -> Token:
    return Token(b"worker", digest_of(SECRET), Role.WRITE, b"^jobs", 1, expires_us, b"etl")


def keys(**more: bytes) -> ApiKeys:
    found = ApiKeys()
    for key, prefix in more.items():
        found.set(digest_of(key.encode()), prefix)
    return found


def connection(client: Client | None = None) -> ConnectionSlot:
    """Return a connection, of a new client unless one is given."""
    gate = ConnectionLimiter("http", Bounds(10, 10), Memory(0), lambda _address: True)
    return ConnectionSlot(gate, client or Client("10.0.0.1", 0), ("10.0.0.1", 1), 0.0)


def code_of(error: pytest.ExceptionInfo[LmqError]) -> str:
    return error.value.code


def test_a_token_for_the_sqs_port_signs_until_it_is_deleted_or_expires() -> None:
    access = Access(None)
    signing = Token(b"signer", digest_of(SECRET), Role.WRITE, b"^jobs", 1, 100, b"etl", sqs_key(SECRET))
    access.follow(tokens(signing, worker()), ApiKeys(), 0)
    found = access.signer("signer")
    assert found is not None
    assert found[0] == base64.urlsafe_b64encode(hmac.digest(SECRET, b"lmqcluster sqs 1", "sha256")).decode()[:43]
    assert found[1] is access.authenticate(SECRET, connection())
    assert access.signer("worker") is None
    access.expire(tokens(signing), 100)
    assert access.signer("signer") is None
    assert found[1].is_revoked
    access.follow(tokens(signing), ApiKeys(), 0)
    access.follow(tokens(), ApiKeys(), 0)
    assert access.signer("signer") is None


def test_without_tokens_this_machine_may_do_everything() -> None:
    access = Access(None)
    access.follow(tokens(), ApiKeys(), 0)
    assert access.anonymous is not None
    assert access.anonymous.is_root
    with pytest.raises(LmqError, match="lmq-admin token create") as refused:
        access.authenticate(SECRET, connection())
    assert code_of(refused) == "unauthorized"


def test_the_first_token_revokes_clients_without_one() -> None:
    access = Access(None)
    changes: list[bool] = []
    access.on_change.append(lambda: changes.append(True))
    access.follow(tokens(), ApiKeys(), 0)
    before = access.anonymous
    access.follow(tokens(worker()), ApiKeys(), 0)
    assert access.anonymous is None
    assert before is not None
    assert before.is_revoked
    assert access.authenticate(SECRET, connection()).name == "worker"
    assert len(changes) == 2


def test_a_deleted_token_is_revoked_for_those_who_hold_it() -> None:
    access = Access(None)
    access.follow(tokens(worker()), ApiKeys(), 0)
    held = access.authenticate(SECRET, connection())
    access.follow(tokens(worker()), ApiKeys(), 0)
    assert access.authenticate(SECRET, connection()) is held
    access.follow(tokens(), ApiKeys(), 0)
    assert held.is_revoked
    with pytest.raises(LmqError) as refused:
        held.require(Role.WRITE, b"jobs")
    assert code_of(refused) == "unauthorized"


def test_a_token_expires_in_log_time_and_access_stays_closed() -> None:
    access = Access(None)
    found = tokens(worker(expires_us=100))
    access.follow(found, ApiKeys(), 99)
    held = access.authenticate(SECRET, connection())
    access.expire(found, 99)
    assert not held.is_revoked
    access.expire(found, 100)
    assert held.is_revoked
    assert access.anonymous is None
    with pytest.raises(LmqError):
        access.authenticate(SECRET, connection())


def test_the_token_of_the_file_needs_no_cluster_and_can_be_changed() -> None:
    access = Access(b"a token of this node")
    access.follow(tokens(), ApiKeys(), 0)
    assert access.anonymous is None
    held = access.authenticate(b"a token of this node", connection())
    assert held.is_root
    access.set_admin_token(b"another token of it")
    assert held.is_revoked
    assert access.authenticate(b"another token of it", connection()).is_root
    access.set_admin_token(None)
    assert access.anonymous is not None


def test_an_api_key_is_valid_where_keys_are_accepted_and_revoked_like_a_token() -> None:
    access = Access(None)
    changes: list[bool] = []
    access.follow(tokens(worker()), keys(first=b"a", second=b"b"), 0)
    access.on_change.append(lambda: changes.append(True))
    with pytest.raises(LmqError):
        access.authenticate(b"first", connection())
    first, second = (access.authenticate(key, connection(), takes_keys=True) for key in (b"first", b"second"))
    assert access.authenticate(b"first", connection(), takes_keys=True) is first
    assert (first.covers(b"abc"), first.covers(b"bc")) == (True, False)
    # One is deleted, and the other gets another prefix.
    access.follow(tokens(worker()), keys(second=b"c"), 0)
    assert first.is_revoked
    assert second.is_revoked
    assert changes == [True]
    assert access.authenticate(b"second", connection(), takes_keys=True).covers(b"c")
    with pytest.raises(LmqError) as refused:
        access.authenticate(b"first", connection(), takes_keys=True)
    assert code_of(refused) == "unauthorized"


def test_guesses_are_limited_and_valid_tokens_and_connections_are_not() -> None:
    access = Access(b"a token of this node")
    access.follow(tokens(worker()), keys(key=b"a"), 0)
    client = Client("10.0.0.1", 0)
    right = connection(client)
    held = access.authenticate(b"key", right, takes_keys=True)
    codes = []
    for number in range(10 * WRONG_SECRETS_PER_S):
        with pytest.raises(LmqError) as refused:
            access.authenticate(b"guess %d" % number, connection(client), takes_keys=True)
        codes.append(code_of(refused))
    # On any machine, the lookups came from a bucket that fills slowly.
    assert codes[:WRONG_SECRETS_PER_S] == ["unauthorized"] * WRONG_SECRETS_PER_S
    assert codes.count("throttled") > WRONG_SECRETS_PER_S
    for guess in (b"key", b"a token of this node"):
        with pytest.raises(LmqError) as refused:
            access.authenticate(guess, connection(client), takes_keys=True)
        assert code_of(refused) == "throttled"
    assert access.authenticate(b"key", right, takes_keys=True) is held
    assert access.authenticate(SECRET, connection(client)).name == "worker"
    assert access.authenticate(b"a token of this node", connection()).is_root


def test_a_restarted_node_serves_no_client_before_it_knows_the_tokens(tmp_path: Path) -> None:
    first = Access(None)
    first.open(Folder(tmp_path))
    first.follow(tokens(worker()), ApiKeys(), 0)
    second = Access(None)
    second.open(Folder(tmp_path))
    second.follow(tokens(), ApiKeys(), 0)
    assert second.anonymous is None
    with pytest.raises(LmqError) as refused:
        second.authenticate(SECRET, connection())
    assert code_of(refused) == "no_leader"
    second.settle()
    assert second.anonymous is not None
    third = Access(None)
    third.open(Folder(tmp_path))
    third.follow(tokens(), ApiKeys(), 0)
    assert third.anonymous is not None


def test_a_principal_is_bound_to_its_role_and_queues() -> None:
    principal = Principal("worker", Role.WRITE, b"^jobs")
    assert principal.allows(Role.WRITE, b"jobs.mail")
    assert not principal.allows(Role.WRITE, b"other.jobs")
    assert not principal.allows(Role.ADMIN, b"jobs.mail")
    principal.require(Role.READ, b"jobs")
    principal.require_pattern(Role.WRITE, b"^jobs")
    for refuse in (
        lambda: principal.require(Role.ADMIN, b"jobs"),
        lambda: principal.require(Role.READ, b"mail"),
        lambda: principal.require_pattern(Role.WRITE, b"^jobs[.]mail"),
        lambda: principal.require_all(Role.READ),
    ):
        with pytest.raises(LmqError) as refused:
            refuse()
        assert code_of(refused) == "forbidden"


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        (("127.0.0.1", 1), True),
        (("127.8.9.10", 1), True),
        (("::1", 1, 0, 0), True),
        (("::ffff:127.0.0.1", 1, 0, 0), True),
        (("10.0.0.1", 1), False),
        (("::ffff:10.0.0.1", 1, 0, 0), False),
        (("fe80::1%eth0", 1, 0, 2), False),
        (("localhost", 1), False),
        ((), False),
        (None, False),
        ("", False),
    ],
)
def test_addresses_of_this_machine(peer: object, expected: bool) -> None:
    assert is_loopback(peer) is expected


def test_a_short_admin_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("  0123456789abcdef \n")
    assert read_admin_token(file) == b"0123456789abcdef"
    file.write_text("short")
    with pytest.raises(ValueError, match="16 bytes"):
        read_admin_token(file)
