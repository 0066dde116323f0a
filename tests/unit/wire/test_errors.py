"""The table of errors and the limits, on which scripts and clients may rely."""

from __future__ import annotations

import re

import pytest

from lmqcluster.wire import limits
from lmqcluster.wire.errors import ERRORS, LmqError, Outcome

EXIT_CODES = {2, 65, 66, 69, 70, 75, 77, 78}


@pytest.mark.parametrize("code", ERRORS)
def test_every_row_is_sound(code: str) -> None:
    """Design 2.2 and 2.3: HTTP status, exit code, outcome and retryable agree with each other."""
    spec = ERRORS[code]
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
    assert 400 <= spec.http <= 599
    assert spec.exit_code in EXIT_CODES
    assert spec.title
    assert not spec.title.endswith(".")
    if spec.outcome is Outcome.UNKNOWN:
        assert not spec.retryable, "resending a request that may have been applied is not safe in general"
    if spec.retryable:
        assert spec.http in {409, 429, 503, 507}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("bad_property", "throw:invalid"),
        ("not_found", "throw:not_found"),
        ("queue_not_found", "throw:queue_not_found"),
        ("bad_pattern", "throw:invalid_regexp"),
        ("unknown_method", "undef"),
        ("bad_arguments", "function_clause"),
    ],
)
def test_lmqs_error_texts(code: str, text: str) -> None:
    """Spec 10.2, as strings."""
    assert LmqError(code, "whatever happened").rpc_text() == text


def test_other_errors_say_code_and_message() -> None:
    """Plan of the RPC protocol: else "code: message"."""
    assert LmqError("overloaded", "the node is full").rpc_text() == "overloaded: the node is full"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("bad_property", 400),
        ("bad_pattern", 400),
        ("bad_name", 400),
        ("not_found", 404),
        ("queue_not_found", 404),
        ("no_leader", 503),
        ("overloaded", 503),
    ],
)
def test_lmqs_status_codes(code: str, status: int) -> None:
    """Spec 2.4, 8.5, 9.1, 7.1, and design 2.3: no leader or overload is 503."""
    assert ERRORS[code].http == status


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("bad_request", 65), ("queue_not_found", 66), ("not_found", 66), ("no_leader", 69), ("conflict", 65), ("unreachable", 69),
     ("internal", 70), ("unknown_outcome", 75), ("unauthorized", 77), ("forbidden", 77)],
)  # fmt: skip
def test_exit_codes_of_the_contract(code: str, exit_code: int) -> None:
    """Design 2.2."""
    assert ERRORS[code].exit_code == exit_code


def test_an_error_carries_the_row_of_its_code() -> None:
    caught = LmqError("no_leader", "no leader now")
    assert (str(caught), caught.message, caught.code) == ("no leader now", "no leader now", "no_leader")
    assert (caught.retryable, caught.outcome) == (True, Outcome.NOT_APPLIED)
    assert caught.spec is ERRORS["no_leader"]


def test_a_row_can_be_overridden() -> None:
    caught = LmqError("no_leader", "lost during the call", retryable=False, outcome=Outcome.UNKNOWN)
    assert (caught.retryable, caught.outcome) == (False, Outcome.UNKNOWN)


def test_an_unknown_code_is_a_bug_and_raises_at_once() -> None:
    with pytest.raises(KeyError):
        LmqError("no_such_code", "")


def test_limits_are_consistent() -> None:
    """An accepted request can be replicated; an accepted message fits a request."""
    assert limits.MESSAGE_BYTES_MAX < limits.REQUEST_BYTES_MAX < limits.FRAME_BYTES_MAX
    assert limits.HANDSHAKE_BYTES_MAX < limits.REQUEST_BYTES_MAX
    assert limits.NAME_BYTES_MAX == 255
    assert limits.MESSAGE_BYTES_MAX >= 20 * 1024 * 1024, "spec 7: 20 MB bodies were checked"
    assert limits.IDEMPOTENCY_WINDOW_S >= 300, "design 2.3 promises 5 minutes"
