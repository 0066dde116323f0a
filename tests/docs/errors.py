"""Write ``docs/errors.md`` from the table of error codes: ``python -m tests.docs.errors``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lmqcluster_cli.shared.errors import exit_code_of

from lmqcluster.wire.errors import ERRORS, LmqError, Outcome

__all__ = ["ADVICE", "PAGE", "page"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "errors.md"

ADVICE: Final = {
    "bad_request": "Correct the request. The text states the mistake.",
    "bad_name": "Use a name of 1 to 255 bytes without control characters.",
    "bad_pattern": "Correct the regular expression. It has RE2 syntax and at most 4,096 bytes.",
    "bad_property": "Correct the property or the rule.",
    "bad_arguments": "Pass arguments of the types that [the method](messagepack-rpc.md#methods) takes.",
    "unknown_method": "Check the name of the method and the number of its arguments.",
    "unauthorized": "Send a valid token.",
    "forbidden": "Use a token with the required role, for this queue, and of the principal that owns the named state.",
    "unknown_host": "Use `localhost` or a loopback address, add the host to the option `http_hosts`, or create tokens.",
    "foreign_origin": "Send the request from a program instead of a web page, or create tokens.",
    "token_not_found": "Check the name with `lmq-admin token list`.",
    "not_found": "Stop working on the message: its lease has ended, or it was answered already.",
    "lease_expired": "Reserve a new epoch. The messages of this one were settled or have returned to their queues.",
    "subscription_not_found": "Check the name with `lmq-admin subscription ls`.",
    "job_not_found": "Check the name with `lmq-admin job ls`.",
    "batch_not_found": "Reserve the epoch before reading it.",
    "queue_not_found": "Check the name. A push creates the queue.",
    "schedule_not_found": "Check the name with `lmq-admin schedule ls`.",
    "task_not_found": "List the tasks of the queue; one that has ended cannot be cancelled.",
    "conflict": "Wait for the other request to end, then repeat this one, unless the answer has `retryable: false`.",
    "fenced": "Stop. Another consumer has claimed the subscription.",
    "out_of_sequence": "Read the position of the stream with `mark` and continue there.",
    "epoch_conflict": "If another run has taken over, stop. If the rows differ from those of an earlier attempt, use another "
    "name for the write, or end its job.",
    "key_reused": "Use another key for each body.",
    "quota_exceeded": "Delete some of the state that the text names, or wait until it expires.",
    "full": "Push later, add consumers, or raise the bounds, which are properties of the queue.",
    "stored_in_part": "Push only the messages that the text names as not stored. Do not repeat the whole request.",
    "lease_lost": "Stop working on the message: its lease has ended, or it was answered already.",
    "suspended": "Resume the endpoint (`POST /queue/NAME/suspend`), or wait until another client does.",
    "session_lost": "Stop working on the messages and locks of the session, and open a new session.",
    "exclusive": "Pull in a session, or set the property `exclusive` of the queue to false.",
    "too_large": "Send less in one request.",
    "overloaded": "Retry after a short delay, or use another node.",
    "throttled": "Wait for the time in the header `Retry-After`.",
    "no_leader": "Retry after a second, or use another node.",
    "shutting_down": "Use another node.",
    "left_cluster": "Use another node.",
    "unreachable": "Check the address and the network, or use another node.",
    "unknown_outcome": "Repeat the request only [if that is safe](messagepack-rpc.md#when-a-connection-breaks).",
    "internal": "Report it with the log of the node.",
}
"""Advice for clients, by error code."""

_OUTCOMES: Final = {Outcome.NOT_APPLIED: "not applied", Outcome.APPLIED: "applied", Outcome.UNKNOWN: "unknown"}

_HEAD: Final = """\
<!-- This page is the output of: python -m tests.docs.errors -->
# Error codes

This page lists all error codes, their meaning and the action to take. Every protocol uses these
codes. They are stable, so programs can match them. The texts that accompany them are for people
and may change.

## What to do

"""

_SHOWN: Final = """\
## How each protocol shows a code

- **HTTP**: the status. The routes under `/v1` answer with `application/problem+json`, whose members
  `code`, `detail`, `retryable` and `outcome` describe the error. LMQ's routes answer with an empty
  body and the header `x-lmq-error: CODE: TEXT`.
- **MessagePack-RPC**: the error element of the response. If the table has none, it is `CODE: TEXT`.
- **Exit code**: the exit code of the programs `lmq`, `lmq-admin` and `lmq-pipeline`.
- **Python**: the clients raise `LmqError` with the attributes `code`, `message`, `retryable` and
  `outcome`.
- **Retry**: *yes* if the same request may be sent again and may then succeed.
- **Outcome**: the effect of the operation. *Unknown* means that it may have taken effect, or may
  still do so.

A few errors differ from their row: `retryable` and `outcome` of the answer are decisive.

"""


def page() -> str:
    """Return the text of the page."""
    return f"{_HEAD}{chr(10).join(_advice())}\n\n{_SHOWN}{chr(10).join(_shown())}\n"


def _advice() -> Iterator[str]:
    yield "| Code | Meaning | What to do |"
    yield "|---|---|---|"
    for code, spec in ERRORS.items():
        yield f"| `{code}` | {spec.title} | {ADVICE[code]} |"


def _shown() -> Iterator[str]:
    yield "| Code | HTTP | MessagePack-RPC | Exit code | Retry | Outcome |"
    yield "|---|---|---|---|---|---|"
    for code, spec in ERRORS.items():
        retry = "yes" if spec.retryable else "no"
        text = f"`{spec.rpc}`" if spec.rpc else ""
        exit_code = int(exit_code_of(LmqError(code, "")))
        cells = (f"`{code}`", spec.http, text, exit_code, retry, _OUTCOMES[spec.outcome])
        yield f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
