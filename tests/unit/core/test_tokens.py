"""Tokens in the replicated state: who has one, what is refused, and what a snapshot keeps."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Machine, Op, Role, TokenResult
from lmqcluster.core.owners.tokens import TOKENS_MAX
from tests.property.driver import SECOND, Driver, compile_pattern, copied, records


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def admin(driver: Driver, name: bytes = b"root", number: int = 0) -> Any:
    return driver.do(Op.SET_TOKEN, name, digest(number), Role.ADMIN, b".*", 0, False, driver.now_us)


def test_a_token_is_kept_with_log_time() -> None:
    driver = Driver()
    assert admin(driver) == TokenResult.DONE
    assert (
        driver.do(Op.SET_TOKEN, b"w", digest(1), Role.WRITE, b"^jobs", 60 * SECOND, False, driver.now_us)
        == TokenResult.DONE
    )
    root, worker = driver.machine.state.tokens
    assert (root.name, root.role, root.expires_us) == (b"root", Role.ADMIN, 0)
    assert worker == (b"w", digest(1), Role.WRITE, b"^jobs", driver.now_us, driver.now_us + 60 * SECOND, b"w", b"")


def test_the_same_command_twice_makes_one_token_and_a_name_is_given_once() -> None:
    driver = Driver()
    assert admin(driver) == TokenResult.DONE
    revision = driver.machine.state.tokens.revision
    assert admin(driver) == TokenResult.DONE
    assert admin(driver, number=1) == TokenResult.EXISTS
    assert driver.machine.state.tokens.revision == revision
    assert len(driver.machine.state.tokens) == 1


def test_a_key_for_the_sqs_port_belongs_to_its_token() -> None:
    driver = Driver()
    admin(driver)
    command = (Op.SET_TOKEN, b"s", digest(1), Role.WRITE, b".*", 0, False, driver.now_us, b"")
    assert driver.do(*command, digest(2)) == TokenResult.DONE
    assert driver.do(*command, digest(2)) == TokenResult.DONE
    assert driver.do(*command, digest(3)) == TokenResult.EXISTS
    assert driver.do(*command) == TokenResult.EXISTS
    assert [token.sqs_key for token in driver.machine.state.tokens] == [b"", digest(2)]


@pytest.mark.parametrize(
    ("role", "pattern", "lifetime_us"),
    [(Role.WRITE, b".*", 0), (Role.ADMIN, b"^jobs", 0), (Role.ADMIN, b".*", SECOND)],
)
def test_the_first_token_must_be_one_that_can_make_others(role: Role, pattern: bytes, lifetime_us: int) -> None:
    driver = Driver()
    command = (b"t", digest(0), role, pattern, lifetime_us)
    assert driver.do(Op.SET_TOKEN, *command, False, driver.now_us) == TokenResult.NO_ADMIN
    assert len(driver.machine.state.tokens) == 0
    assert driver.do(Op.SET_TOKEN, *command, True, driver.now_us) == TokenResult.DONE


def test_the_last_administrator_can_be_deleted_only_after_all_other_tokens() -> None:
    driver = Driver()
    admin(driver)
    driver.do(Op.SET_TOKEN, b"w", digest(1), Role.WRITE, b".*", 0, False, driver.now_us)
    assert driver.do(Op.DELETE_TOKEN, b"root", False) == TokenResult.NO_ADMIN
    assert driver.do(Op.DELETE_TOKEN, b"w", False) == TokenResult.DONE
    assert driver.do(Op.DELETE_TOKEN, b"w", False) == TokenResult.UNKNOWN
    assert driver.do(Op.DELETE_TOKEN, b"root", False) == TokenResult.DONE
    assert len(driver.machine.state.tokens) == 0


def test_tokens_are_limited_in_number() -> None:
    driver = Driver()
    for number in range(TOKENS_MAX):
        assert admin(driver, b"%d" % number, number) == TokenResult.DONE
    assert admin(driver, b"more", TOKENS_MAX) == TokenResult.FULL


@pytest.mark.parametrize(
    "arguments",
    [
        (b"", digest(0), 3, b".*", 0, True, 0),
        (b"x" * 101, digest(0), 3, b".*", 0, True, 0),
        (b"t", b"short", 3, b".*", 0, True, 0),
        (b"t", digest(0), 0, b".*", 0, True, 0),
        (b"t", digest(0), 3, b"(", 0, True, 0),
        (b"t", digest(0), 3, b".*", 1.5, True, 0),
        (b"t", digest(0), 3, b".*", -1, True, 0),
        ("t", digest(0), 3, b".*", 0, True, 0),
        (b"t", digest(0), 3, b".*", 0, True, 0, b"x" * 101),
        (b"t", digest(0), 3, b".*", 0, True, 0, "principal"),
        (b"t", digest(0), 3, b".*", 0, True, 0, b"", b"short"),
        (b"t", digest(0), 3, b".*", 0, True, 0, b"", "key"),
    ],
)
def test_a_malformed_token_is_refused(arguments: tuple[Any, ...]) -> None:
    machine = Machine(compile_pattern)
    applied = machine.apply(0, b"n", 1, 1, [[Op.SET_TOKEN, *arguments]])
    assert isinstance(applied.results[0], Fault)
    assert len(machine.state.tokens) == 0


def test_a_snapshot_keeps_tokens_and_has_no_record_without_any() -> None:
    driver = Driver()
    driver.do(Op.BARRIER)
    assert not any(record[0] == "tokens" for record in records(driver.machine))
    admin(driver)
    driver.do(Op.SET_TOKEN, b"w", digest(1), Role.WRITE, b"^jobs", SECOND, False, driver.now_us)
    driver.do(Op.SET_TOKEN, b"s", digest(2), Role.WRITE, b"^jobs", 0, False, driver.now_us, b"", digest(3))
    restored = copied(driver.machine)
    assert [token.sqs_key for token in restored.state.tokens] == [b"", digest(3), b""]
    assert list(restored.state.tokens) == list(driver.machine.state.tokens)
    assert records(restored) == records(driver.machine)
