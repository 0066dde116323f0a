"""The protocol document of MessagePack-RPC and the code name the same methods, arguments, roles, errors and limits."""

from __future__ import annotations

import re

import pytest

from lmqcluster.core.dedup.stream_positions import NOTE_BYTES_MAX
from lmqcluster.core.handlers.transactions import OPERATIONS_MAX
from lmqcluster.core.queue.settlement_history import SettlementHistory
from lmqcluster.node.commit import proposer
from lmqcluster.node.gates import ARRIVAL_BYTES_PER_S
from lmqcluster.node.queues.batches import subscriptions
from lmqcluster.node.queues.patterns import views as pattern_views
from lmqcluster.node.queues.pushes import copies as push_copies
from lmqcluster.node.queues.pushes import jobs
from lmqcluster.protocols.msgpack_rpc import port
from lmqcluster.protocols.msgpack_rpc.connection import connection, slow_answers, stream
from lmqcluster.protocols.msgpack_rpc.connection import request_reader as intake
from lmqcluster.protocols.msgpack_rpc.methods.permissions import PERMISSIONS
from lmqcluster.protocols.msgpack_rpc.methods.table import METHODS
from lmqcluster.wire import limits, values
from lmqcluster.wire.errors import ERRORS
from lmqcluster.wire.legacy_msgpack import unpack
from tests.docs.messagepack_rpc import PAGES, TEXT, Method, methods
from tests.docs.needs import phrase
from tests.integration.raw_rpc import OLD_TYPES_ONLY, types_of

FOUND = methods()
KiB = 1024
MiB = 1024 * KiB


def test_every_method_has_a_section_and_every_section_is_of_a_method() -> None:
    names = [method.name for method in FOUND]
    assert sorted(names) == sorted(name.decode() for name in METHODS)


def test_the_index_leads_to_the_page_of_each_method() -> None:
    rows = re.findall(
        r"^\| \[[^]]+\]\(([^)]+)\) \| (`.*`) \|$", TEXT.partition("\n| Page | Methods |")[2], re.MULTILINE
    )
    named = {
        (name, page if page in {file.name for file in PAGES} else "messagepack-rpc.md")
        for page, names in rows
        for name in re.findall(r"\w+", names)
    }
    assert named == {(method.name, method.page) for method in FOUND}


@pytest.mark.parametrize("method", FOUND, ids=lambda method: method.name)
def test_a_section_describes_the_arguments_of_its_call(method: Method) -> None:
    """Methods without arguments, and those that refer to another description, need no table."""
    if not method.described:
        assert method.arguments <= {"queue", "subscription", "name"} or "Arguments and" in method.text
    else:
        assert method.described == method.arguments


@pytest.mark.parametrize("method", FOUND, ids=lambda method: method.name)
def test_a_section_names_the_role_that_the_method_needs(method: Method) -> None:
    assert method.needs == phrase(PERMISSIONS[method.name.encode()])


@pytest.mark.parametrize("method", FOUND, ids=lambda method: method.name)
def test_the_errors_that_a_section_names_exist(method: Method) -> None:
    assert set(method.errors) <= ERRORS.keys()
    assert not set(method.errors) & set(common_codes()), "every method can fail with these"


def common_codes() -> list[str]:
    table = TEXT.partition("\n| Code | When |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def test_the_errors_that_every_method_has_exist() -> None:
    codes = common_codes()
    assert {"unauthorized", "no_leader", "unknown_outcome"} <= set(codes) <= ERRORS.keys()
    outcomes = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (no|unknown) \|", TEXT, re.MULTILINE))
    wanted = {"not_applied": "no", "unknown": "unknown"}
    assert outcomes == {code: wanted[ERRORS[code].outcome] for code in codes}


def test_the_texts_of_lmq_map_to_the_documented_codes() -> None:
    found = dict(re.findall(r"^\| `([\w:]+)` \| `(\w+)`: ", TEXT, re.MULTILINE))
    assert found == {spec.rpc: code for code, spec in ERRORS.items() if spec.rpc is not None}


def test_the_table_of_formats_has_every_first_byte_that_a_node_accepts_or_sends() -> None:
    table = TEXT.partition("| First byte | Value |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w\w)`(?: to `(\w\w)`)? \|.*\| (yes|no) \|$", table, re.MULTILINE)
    taken: set[int] = set()
    sent: set[int] = set()
    for first, last, is_sent in rows:
        found = set(range(int(first, 16), int(last or first, 16) + 1))
        assert not found & taken
        taken |= found
        if is_sent == "yes":
            sent |= found
    assert taken == {byte for byte in range(256) if is_taken(byte)}
    assert sent == {byte for byte in taken if types_of(token(byte)) <= OLD_TYPES_ONLY}


def is_taken(byte: int) -> bool:
    try:
        unpack(token(byte))
    except ValueError:
        return False
    return True


def token(byte: int) -> bytes:
    """Return the shortest value with this first byte, whose length and elements are zeros."""
    for size in range(1, 40):
        value = bytes((byte,)) + bytes(size - 1)
        try:
            unpack(value)
        except ValueError:
            continue
        return value
    return bytes((byte,))


@pytest.mark.parametrize(
    ("said", "value", "wanted"),
    [
        ("104 MiB and 1,000,000 values", (limits.REQUEST_BYTES_MAX, values.VALUES_MAX), (104 * MiB, 1_000_000)),
        ("| Content of one message | 64 MiB", limits.MESSAGE_BYTES_MAX, 64 * MiB),
        (
            "| Messages or ids in one request | 10,000 |",
            (limits.PUSH_COUNT_MAX, limits.PULL_COUNT_MAX),
            (10_000,) * 2,
        ),
        ("| Operations of one transaction | 1,000 |", OPERATIONS_MAX, 1_000),
        ("ends with the message that exceeds 16 MiB", connection.MANY_BYTES_MAX, 16 * MiB),
        ("result ends with the message that exceeds 16 MiB", subscriptions.SLICE_BYTES_MAX, 16 * MiB),
        ("and [Jobs](messagepack-rpc-jobs.md#jobs) | 64 |", slow_answers.TASKS_MAX, 64),
        ("| 128 at each node |", pattern_views.CLIENT_VIEWS_MAX, 128),
        ("| Responses that a client has not read | 96 MiB |", stream.UNREAD_BYTES_MAX, 96 * MiB),
        ("reads nothing of unread responses | 60 seconds |", stream.UNREAD_S_MAX, 60),
        ("nothing of an unfinished request arrives | 5 seconds |", port.PARTIAL_S_MAX, 5),
        ("1 second more for each 64 KiB", ARRIVAL_BYTES_PER_S, 64 * KiB),
        (
            "at most 1,024 bytes and 32 values",
            (intake.STRANGER_BYTES_MAX, intake.STRANGER_VALUES_MAX),
            (1_024, 32),
        ),
        ("ends after 64 requests or 10 seconds", stream.STRANGER_REQUESTS_MAX, 64),
        ("of at most 64 bytes", stream.MSGID_BYTES_MAX, 64),
        ("no leader accepted the request within 6 seconds", proposer.NO_LEADER_AFTER_S, 6),
        ("not confirmed within 15 seconds", proposer.UNKNOWN_AFTER_S, 15),
        ("It reaches at most 100,000 queues, 1,000 at a time", push_copies.QUEUES_MAX, 100_000),
        ("more than 65,536 deliveries", SettlementHistory.ENDINGS_MAX, 65_536),
        ("up to 1 MiB that is appended to the notes", NOTE_BYTES_MAX, MiB),
        ("at most 4 MiB. Ask again", jobs.NOTES_SLICE_BYTES, 4 * MiB),
        ("at most 2,592,000 (30 days)", subscriptions.LEASE_S_MAX, 2_592_000),
        ("A queue name** is a string of 1 to 255 bytes", limits.NAME_BYTES_MAX, 255),
        ("of at most 4,096 bytes", limits.PATTERN_BYTES_MAX, 4_096),
    ],
)
def test_a_limit_is_the_one_of_the_code(said: str, value: object, wanted: object) -> None:
    assert said in " ".join(TEXT.split())
    assert value == wanted
