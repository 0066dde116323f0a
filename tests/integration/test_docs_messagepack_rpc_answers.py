"""The protocol document of MessagePack-RPC names the errors and keys that a node really returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lmqcluster.wire.errors import ERRORS
from tests.docs.messagepack_rpc import TEXT, methods

from .cluster import NodeProcess
from .raw_rpc import Rpc

QUEUE, ABSENT, CLAIMED, SETTLED = "docs-errors", "docs-absent", "docs-claimed", "docs-settled"
FULL, ROOM_FOR_ONE, EXCLUSIVE, GONE = "docs-full", "docs-one", "docs-exclusive", "docs-gone"
MOVING, MOVED = "docs-moving", "docs-moved"
ID = "0" * 32
OTHER_SESSION = 1 << 40
BATCH = {"pattern": False, "count": 1, "lease": 60}

REFUSED: dict[tuple[str, str], list[Any]] = {
    ("push", "bad_name"): ["", 1],
    ("push", "bad_request"): [QUEUE, 1, {"delay": -1}],
    ("push", "full"): [FULL, 1],
    ("push", "key_reused"): [QUEUE, "another content", {"key": "k"}],
    ("push_many", "bad_name"): ["n" * 256, [1]],
    ("push_many", "bad_request"): [QUEUE, [1], {"options": [{"delay": -1}]}],
    ("push_many", "full"): [FULL, [1]],
    ("push_many", "stored_in_part"): [ROOM_FOR_ONE, [1, 2]],
    ("push_many", "key_reused"): [QUEUE, ["another content"], {"keys": ["k"]}],
    ("push_each", "bad_name"): ["", [1]],
    ("push_all", "bad_pattern"): ["(", 1],
    ("push_all", "full"): [f"^{FULL}$", 1],
    ("push_all", "stored_in_part"): [f"^({FULL}|{QUEUE})$", 1],
    ("pull", "bad_name"): ["\n"],
    ("pull", "bad_request"): [QUEUE, 0, {"lease": 0}],
    ("pull_many", "bad_name"): ["\n", 1],
    ("pull_many", "bad_request"): [QUEUE, 1, 0, {"lease": 0}],
    **{(method, "exclusive"): [EXCLUSIVE, *more] for method, more in (("pull", [0]), ("pull_many", [1]))},
    ("pull", "session_lost"): [QUEUE, 0, {"session": ID}],
    ("pull_many", "session_lost"): [QUEUE, 1, 0, {"session": ID}],
    ("open_session", "bad_request"): [0],
    **{(method, "session_lost"): [QUEUE, ID] for method in ("leave_queue", "lock", "unlock")},
    **{(method, "bad_name"): ["", ID] for method in ("lock", "unlock")},
    ("pull_any", "bad_pattern"): ["("],
    **{(method, "not_found"): [QUEUE, ID] for method in ("done", "release", "retain")},
    **{(method, "queue_not_found"): [ABSENT, ID] for method in ("done", "release", "retain")},
    ("release", "bad_request"): [QUEUE, ID, {"delay": -1}],
    ("release_many", "bad_request"): [QUEUE, [ID], {"delay": -1}],
    ("retain", "bad_request"): [QUEUE, ID, {"lease": 0}],
    ("retain_many", "bad_request"): [QUEUE, [ID], {"lease": 0}],
    ("transaction", "bad_name"): [[["push", "", 1]]],
    ("transaction", "bad_request"): [[["push", QUEUE, 1, {"delay": -1}]]],
    ("transaction", "full"): [[["push", FULL, 1]]],
    ("transaction", "key_reused"): [[["push", QUEUE, "another content", {"key": "k"}]]],
    ("transaction", "lease_lost"): [[["done", QUEUE, ID]]],
    ("update_props", "bad_name"): ["\n"],
    ("update_props", "bad_property"): [QUEUE, {"no such property": 1}],
    ("set_default_props", "bad_property"): [[["(", {}]]],
    **{(method, "queue_not_found"): [ABSENT] for method in ("purge", "suspend", "resume")},
    ("move", "bad_name"): [QUEUE, "\n"],
    ("move", "bad_request"): [QUEUE, QUEUE],
    ("move", "queue_not_found"): [ABSENT, QUEUE],
    ("withdraw", "bad_request"): [QUEUE, ""],
    ("withdraw", "queue_not_found"): [ABSENT, "l"],
    ("count_labelled", "bad_request"): [QUEUE, ""],
    ("count_labelled", "queue_not_found"): [ABSENT, "l"],
    ("redrive", "bad_name"): [QUEUE, {"to": "\n"}],
    ("redrive", "bad_request"): [QUEUE, {"to": QUEUE}],
    ("redrive", "queue_not_found"): [ABSENT],
    ("start_move_task", "bad_request"): [QUEUE, {"rate": 0}],
    ("start_move_task", "conflict"): [MOVING, {"to": MOVED}],
    ("start_move_task", "queue_not_found"): [ABSENT],
    ("cancel_move_task", "task_not_found"): [QUEUE, 1],
    ("move_tasks", "queue_not_found"): [ABSENT],
    ("bind", "bad_name"): [QUEUE, "\n"],
    ("bind", "bad_request"): [QUEUE, QUEUE],
    ("unbind", "bad_name"): [QUEUE, "n" * 256],
    ("claim_subscription", "bad_name"): [""],
    ("reserve_batch", "bad_name"): ["", 1, QUEUE, BATCH],
    ("reserve_batch", "bad_pattern"): [SETTLED, 2, "(", {**BATCH, "pattern": True}],
    ("reserve_batch", "bad_request"): [SETTLED, 0, QUEUE, BATCH],
    ("reserve_batch", "fenced"): [CLAIMED, 1, QUEUE, BATCH],
    ("read_batch", "batch_not_found"): [SETTLED, 2, 0, 1],
    ("read_batch", "fenced"): [CLAIMED, 1, 0, 1, OTHER_SESSION],
    ("read_batch", "lease_expired"): [SETTLED, 1, 0, 1],
    ("read_batch", "lease_lost"): [GONE, 1, 0, 1],
    ("cut_batch", "bad_request"): [GONE, 1, 0],
    ("renew_batches", "bad_name"): ["", 1],
    ("renew_batches", "bad_request"): [SETTLED, 0],
    ("renew_batches", "fenced"): [CLAIMED, 1],
    ("settle_batches", "bad_name"): ["", 1],
    ("settle_batches", "bad_request"): [SETTLED, 0],
    ("settle_batches", "fenced"): [CLAIMED, 1],
    ("abandon_batches", "bad_name"): [""],
    ("abandon_batches", "fenced"): [CLAIMED],
    ("delete_subscription", "bad_name"): [""],
    ("backlog", "bad_pattern"): ["(", True],
    ("backlog", "bad_request"): [QUEUE, False, None, 101],
    ("peek", "bad_request"): [QUEUE, 0, 0],
    ("peek", "queue_not_found"): [ABSENT, 1, 0],
    ("peek_ranges", "bad_request"): [QUEUE, 0, 1],
    ("peek_ranges", "queue_not_found"): [ABSENT, 1, 1],
    ("push_marked", "bad_name"): [QUEUE, [1], {"job": "", "stream": "s", "first": 0}],
    ("push_marked", "bad_request"): [QUEUE, [1], {"job": "j", "stream": "s", "first": -1}],
    ("push_marked", "full"): [FULL, [1], {"job": "j", "stream": "s", "first": 0}],
    ("push_marked", "epoch_conflict"): [
        QUEUE,
        [1],
        {"job": "j", "stream": "s", "first": 0, "note": "0" * 16, "epoch": 0, "run": "r"},
    ],
    ("begin_epoch", "bad_name"): ["", 0, "r"],
    ("begin_epoch", "bad_request"): ["j", -1, "r"],
    ("begin_epoch", "epoch_conflict"): ["plain", 0, "r"],
    ("finish_epoch", "bad_name"): ["", 0, "r", 0, "0" * 16],
    ("finish_epoch", "bad_request"): ["j", 0, "r", 0, "short"],
    ("finish_epoch", "epoch_conflict"): ["no such job", 0, "r", 0, "0" * 16],
    ("set_schedule", "bad_name"): ["", QUEUE, 1, {"interval": 1}],
    ("set_schedule", "bad_request"): ["hourly", QUEUE, 1, {}],
    **{(f"{verb}_schedule", "bad_name"): [""] for verb in ("pause", "resume", "run", "delete")},
    **{(f"{verb}_schedule", "schedule_not_found"): [ABSENT] for verb in ("pause", "resume", "run", "delete")},
    ("run_schedule", "full"): ["hourly"],
    ("schedule", "bad_name"): [""],
    ("push_marked", "out_of_sequence"): [QUEUE, [1], {"job": "j", "stream": "s", "first": 7}],
}
ELSEWHERE = {("auth", "conflict"), ("set_schedule", "conflict")}
"""The first needs a cluster with tokens, see `test_access`, the second another client at the same moment."""


@pytest.fixture(scope="module")
def rpc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rpc]:
    """A connection to a node with a queue, a claimed subscription, and one that has settled epoch 1."""
    with NodeProcess(tmp_path_factory.mktemp("docs")) as node, Rpc(node.rpc) as connection:
        connection.call("push", QUEUE, 1, {"key": "k"})
        connection.call("update_props", FULL, {"max_items": 0})
        connection.call("update_props", ROOM_FOR_ONE, {"max_items": 1})
        connection.call("update_props", EXCLUSIVE, {"exclusive": True})
        connection.call("set_schedule", "hourly", FULL, 1, {"interval": 3600, "start": 1 << 33})
        connection.call("push_many", MOVING, [1] * 100)
        connection.call("push", MOVED, 1)
        connection.call("start_move_task", MOVING, {"to": MOVED, "rate": 1})
        connection.call("claim_subscription", CLAIMED)
        connection.call("settle_batches", SETTLED, 1)
        connection.call("push", GONE, 1)
        connection.call("reserve_batch", GONE, 1, GONE, BATCH)
        connection.call("delete", GONE)
        connection.call("push_marked", QUEUE, [], {"job": "plain", "stream": "s", "first": 0})
        yield connection


def test_every_error_that_a_section_names_is_tried() -> None:
    named = {(method.name, code) for method in methods() for code in method.errors if code != "quota_exceeded"}
    assert named == REFUSED.keys() | ELSEWHERE


@pytest.mark.parametrize(("method", "code"), REFUSED, ids=" ".join)
def test_a_node_answers_with_the_error_that_a_section_names(rpc: Rpc, method: str, code: str) -> None:
    text = rpc.error(method, *REFUSED[method, code]).decode()
    assert text == ERRORS[code].rpc or text.startswith(f"{code}: ")


# --- keys of answers --------------------------------------------------------------------------------------------------


def keys_in(heading: str) -> list[str]:
    """Return the keys in the first table of keys below a heading."""
    section = re.split(r"^#+ ", TEXT.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    table = section.partition("\n| Key | Type | Meaning |\n")[2].partition("\n\n")[0]
    keys = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert keys, heading
    return keys


def message(rpc: Rpc) -> Any:
    rpc.call("push", "docs-keys", "content")
    return rpc.call("pull", "docs-keys", 0)


def columns(rpc: Rpc) -> Any:
    rpc.call("push", "docs-keys", "content")
    assert rpc.call("reserve_batch", "docs-keys", 1, "docs-keys", BATCH)[:2] == [b"live", 1]
    return rpc.call("read_batch", "docs-keys", 1, 0, 10, None, True)


def jobs(rpc: Rpc) -> Any:
    rpc.call("push_marked", "docs-keys", [1], {"job": "docs-keys", "stream": "s", "first": 0})
    return rpc.call("jobs")[0]


@pytest.mark.parametrize(
    ("heading", "answer"),
    [
        ("Messages", message),
        ("`read_batch`", columns),
        ("`subscription`", lambda rpc: rpc.call("subscription", CLAIMED)),
        ("`jobs`", jobs),
        ("`cluster`", lambda rpc: rpc.call("cluster")),
    ],
)
def test_an_answer_has_the_keys_that_the_document_shows(
    rpc: Rpc, heading: str, answer: Callable[[Rpc], dict[bytes, Any]]
) -> None:
    assert sorted(key.decode() for key in answer(rpc)) == sorted(keys_in(heading))


def test_the_keys_of_a_message_are_in_the_documented_order(rpc: Rpc) -> None:
    assert [key.decode() for key in message(rpc)] == keys_in("Messages")


def test_a_producer_sees_the_content_type(rpc: Rpc) -> None:
    """It is the sixth key of a message, on a connection that called `producer`; a string of `push_all` has no type."""
    assert rpc.call("update_props", "docs-typed") == b"ok"
    rpc.call("push_all", "^docs-typed$", "as it is")
    rpc.call("producer", "12345678", 1)
    assert list(rpc.call("pull", "docs-typed", 0).items())[-1] == (b"content_type", None)


def test_a_number_that_was_stored_is_answered_and_not_stored_again(rpc: Rpc) -> None:
    rpc.call("producer", "a producer's id", 1)
    assert rpc.call("push_many", "docs-numbered", ["a", "b"]) == [b"ok", b"ok"]
    rpc.call("producer", "a producer's id", 2)
    assert rpc.call("push_many", "docs-numbered", ["b", "c"]) == [b"ok", b"ok"]
    assert [found[b"content"] for found in rpc.call("pull_many", "docs-numbered", 10)] == [b"a", b"b", b"c"]


def test_an_id_of_a_batch_is_the_prefix_and_the_number(rpc: Rpc) -> None:
    rpc.call("push", "docs-batch", "content")
    rpc.call("reserve_batch", "docs-batch", 1, "docs-batch", BATCH)
    prefix, [number] = rpc.call("read_batch", "docs-batch", 1, 0, 1)[b"id"]
    assert rpc.call("done", "docs-batch", f"{prefix.decode()}{number:012x}") == b"ok"


def test_an_empty_epoch_may_be_used_again(rpc: Rpc) -> None:
    assert rpc.call("reserve_batch", "docs-empty", 1, "docs-empty", BATCH)[0] == b"empty"
    rpc.call("push", "docs-empty", 1)
    assert rpc.call("reserve_batch", "docs-empty", 1, "docs-empty", BATCH)[0] == b"live"
