"""Parts of the SQS protocol: forms, texts, attributes, receipts, names, policies."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus
from xml.etree import ElementTree as ET

import pytest

from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.protocols.sqs.errors import SqsError, as_sqs
from lmqcluster.protocols.sqs.form import leaf, numbered, parse_form
from lmqcluster.protocols.sqs.limits import limits_of
from lmqcluster.protocols.sqs.message_attributes import (
    Attribute,
    check_text,
    md5_of,
    of_stored,
    selected,
    stored,
)
from lmqcluster.protocols.sqs.names import arn_queue, is_creatable, url_queue
from lmqcluster.protocols.sqs.permissions import PERMISSIONS
from lmqcluster.protocols.sqs.query_codec import QueryCodec
from lmqcluster.protocols.sqs.receipts import Receipt, Receipts
from lmqcluster.protocols.sqs.redrive_policies import AllowPolicy, RedrivePolicy, allow_policy, redrive_policy
from lmqcluster.protocols.sqs.rendering import LONG_CHARACTERS, assembled, json_bytes, json_text
from lmqcluster.protocols.sqs.shapes import SHAPES
from lmqcluster.wire.address import Address
from lmqcluster.wire.attributes import pack_attributes, unpack_attributes
from lmqcluster.wire.errors import ERRORS, LmqError
from lmqcluster.wire.ids import ReceiptFormat
from lmqcluster.wire.xml_text import _ILLEGAL

# --- forms ------------------------------------------------------------------------------------------------------------


def test_a_form_is_a_tree_of_the_parts_of_its_names() -> None:
    form = b"Action=x&A.2.Name=b&A.10.Name=c&A.1.Name=a&B=+%2B%C3%A9&&C&D.Name=d&D=e&E=1&E.1=2&=x"
    tree = asyncio.run(parse_form(form))
    assert leaf(tree, "Action") == "x"
    assert leaf(tree, "B") == " +é"
    assert leaf(tree, "C") == ""
    assert leaf(tree, "A") is None
    assert [row["Name"] for row in numbered(tree, "A") if isinstance(row, dict)] == ["a", "b", "c"]
    assert numbered(tree, "D") == [{"Name": "d"}]
    assert numbered(tree, "E") == ["2"]
    assert numbered(tree, "Action") == ["x"]
    assert numbered(tree, "C") == numbered(tree, "none") == []


@pytest.mark.parametrize("before", range(4))
def test_a_long_value_is_decoded_as_a_whole(before: int) -> None:
    text = "x" * (32 * 1024 - before) + "é€%" * 30_000
    tree = asyncio.run(parse_form(b"a=" + quote_plus(text).encode()))
    assert tree == {"a": text}
    assert asyncio.run(parse_form(b"a=" + b"x" * 40_000 + b"%" * 40_000)) == {"a": "x" * 40_000 + "%" * 40_000}


def test_names_of_parameters_have_a_bounded_depth() -> None:
    tree: Any = asyncio.run(parse_form(b"a." * 100_000 + b"=1"))
    depth = 0
    while isinstance(tree, dict):
        tree, depth = next(iter(tree.values())), depth + 1
    assert depth == 8


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        True,
        1,
        "x",
        {"a": [], "b": {}, "ü": [{"c": "d"}, 'e"\\\n']},
        {"Body": 'é"\\\n😀' * LONG_CHARACTERS},
    ],
    ids=range(8),
)
def test_pieces_of_json_are_the_json_of_the_whole(value: Any) -> None:
    assert json.loads(asyncio.run(assembled(json_text(value)))) == value
    assert json.loads(asyncio.run(json_bytes(value))) == value


def test_xml_parses_back_to_the_same_text() -> None:
    body = '<a b="c">&amp;]]>\r\n\r\t' + "&\r" * LONG_CHARACTERS
    codec = QueryCodec({"Action": "ReceiveMessage"}, "/")
    reply = asyncio.run(codec.answer({"Messages": [{"Body": body, "Attributes": {"<": "&"}}]}, "id"))
    root = ET.fromstring(reply.content)
    namespace = "{http://queue.amazonaws.com/doc/2012-11-05/}"
    message = root.find(f"{namespace}ReceiveMessageResult/{namespace}Message")
    assert message is not None
    assert message.findtext(f"{namespace}Body") == body
    assert message.findtext(f"{namespace}Attribute/{namespace}Name") == "<"


def test_an_action_without_an_output_has_no_result() -> None:
    codec = QueryCodec({"Action": "DeleteMessage"}, "/")
    assert b"Result" not in asyncio.run(codec.answer(None, "id")).content
    assert b"<DeleteMessageResult/>" in asyncio.run(codec.answer({}, "id")).content


# --- attributes -------------------------------------------------------------------------------------------------------


def test_attributes_survive_their_stored_form() -> None:
    given = {
        "text": Attribute("String", "x"),
        "labelled": Attribute("String.x", "y"),
        "number": Attribute("Number", "1.50"),
        "bytes": Attribute("Binary", b"\x00"),
        "image": Attribute("Binary.png", b"\x01"),
    }
    values = unpack_attributes(pack_attributes(stored(given, "trace", "")))
    seen, hidden = of_stored(values)
    assert seen == given
    assert hidden["AWSTraceHeader"] == "trace"
    assert hidden["sqs.deduplication_id"] == ""
    own = {"AWSTraceHeader": Attribute("String", "mine")}
    assert of_stored(stored(own, "trace", None))[0] == own


def test_attributes_of_other_clients_have_types_too() -> None:
    seen, _hidden = of_stored({"a": 1, "b": 1.5, "c": "x", "d": b"\x00", "sqs.types": "[["})
    assert seen == {
        "a": Attribute("Number", "1"),
        "b": Attribute("Number", "1.5"),
        "c": Attribute("String", "x"),
        "d": Attribute("Binary", b"\x00"),
    }
    for types in ("[]", '{"c":1}', "\x00", "[" * 100_000):
        assert of_stored({"c": "x", "sqs.types": types})[0] == {"c": Attribute("String", "x")}
    assert of_stored({"c": b"x", "sqs.types": '{"c":"Number"}'})[0]["c"].data_type == "Binary"


def test_a_digest_depends_on_every_part() -> None:
    digests = {
        md5_of({name: Attribute(kind, value)})
        for name, kind, value in [
            ("a", "String", "b"),
            ("ab", "String", ""),
            ("a", "Strin", "gb"),
            ("a", "String.x", "b"),
        ]
    } | {md5_of({"a": Attribute("Binary", b"b")})}
    assert len(digests) == 5


def test_selection_of_attributes() -> None:
    given = {name: Attribute("String", name) for name in ("a", "a.b", "b")}
    for names, found in ((["a"], "a"), (["a.*"], "a a.b"), (["All", "x"], "a a.b b"), ([".*"], "a a.b b"), (["x"], "")):
        assert " ".join(selected(given, names)) == found


@pytest.mark.parametrize("text", ["\x00", "\x08", "\x0b", "\x1f", "\ufffe", "\uffff", "\ud800", "a" * 100_000 + "\x01"])
def test_characters_that_xml_cannot_carry(text: str) -> None:
    with pytest.raises(SqsError):
        check_text(text)
    check_text("\t\n\r \x7f\ud7ff\ue000\ufffd\U00010000\U0010ffff")


class CountedRows(list[Any]):
    """A list that counts how many of its items were read."""

    read = 0

    def __iter__(self) -> Iterator[Any]:
        for one in super().__iter__():
            self.read += 1
            yield one


def test_a_long_answer_is_measured_in_a_bounded_time() -> None:
    rows = CountedRows({"Id": f"{number}"} for number in range(100_000))
    pieces = json_text({"Successful": rows})
    assert next(pieces) + next(pieces) + next(pieces) == '{"Successful":[{"Id": "0"}'
    assert rows.read < 5_000
    assert json.loads("".join(json_text({"Successful": rows}))) == {"Successful": list(rows)}


# --- receipts and names -----------------------------------------------------------------------------------------------


def test_no_printable_character_is_refused() -> None:
    for text in filter(str.isprintable, map(chr, range(sys.maxunicode + 1))):
        assert _ILLEGAL.search(text) is None, ascii(text)


def receipts_of(salt: bytes) -> Receipts:
    return Receipts(lambda: ReceiptFormat(salt))


def test_a_receipt_is_good_for_its_queue_in_its_cluster() -> None:
    receipts = receipts_of(b"0123456789")
    receipt = Receipt(2**48 - 1, 2**32 - 1, 1_800_000_000)
    handle = receipts.handle(b"q", receipt)
    assert receipts.parse(b"q", handle) == receipt
    bad = [handle[:-1], handle + "A", handle.lower(), "", "*" * 28, "x" * 2000, "é"]
    for queue, text, other in [(b"r", handle, receipts), (b"q", handle, receipts_of(b"9876543210"))] + [
        (b"q", one, receipts) for one in bad
    ]:
        with pytest.raises(SqsError):
            other.parse(queue, text)
    with pytest.raises(SqsError):
        receipts.parse(b"q", receipts.handle(b"q", Receipt(1, 0, 1)))


def test_ids_of_messages_are_uuids_that_follow_from_the_salt() -> None:
    receipts = receipts_of(b"0123456789")
    assert receipts.message_id(1) == receipts.message_id(1) != receipts.message_id(2)
    assert receipts.message_id(1) != receipts_of(b"9876543210").message_id(1)
    assert receipts.message_id(7).encode() != ReceiptFormat(b"0123456789").format(7)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("q", b"q"),
        ("a%41", b"a%41"),
        ("http://h/1/q", b"q"),
        ("http://h/1/q/", b"q"),
        ("/1/a%41%ff", b"aA\xff"),
        ("http://h/1/q?x=/y#z", b"q"),
        ("a+b", b"a+b"),
        ("/a+b", b"a+b"),
        ("/", b""),
    ],
)
def test_urls(url: str, name: bytes) -> None:
    assert url_queue(url) == name


def test_arns() -> None:
    assert arn_queue("arn:aws:sqs:eu-west-1:111122223333:q.fifo", "SourceArn") == b"q.fifo"
    for arn in ("", "q", "arn:aws:sqs:x:y", "arn:aws:sns:x:y:q", "arn:aws:sqs:x:y:", "x:aws:sqs:x:y:q"):
        with pytest.raises(SqsError):
            arn_queue(arn, "SourceArn")


def test_names_of_both_kinds() -> None:
    assert is_creatable("a-b_1")
    assert is_creatable("a.fifo")
    assert not is_creatable("a.fifo", is_fifo=False)
    assert not is_creatable("a", is_fifo=True)
    assert not is_creatable("a\n")


# --- policies, errors, tables -----------------------------------------------------------------------------------------


def test_policies_keep_names() -> None:
    def arn(name: bytes) -> str:
        return f"arn:aws:sqs:r:a:{name.decode()}"

    text = '{"deadLetterTargetArn":"arn:aws:sqs:other:1:q","maxReceiveCount":"7"}'
    policy = redrive_policy(text)
    assert policy == RedrivePolicy(b"q", 7)
    assert policy is not None
    assert json.loads(policy.shown(arn)) == {"deadLetterTargetArn": arn(b"q"), "maxReceiveCount": 7}
    given = '{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:other:1:q"]}'
    allowed = allow_policy(given)
    assert allowed == AllowPolicy("byQueue", ("q",))
    assert AllowPolicy.of_kept(allowed.kept() if allowed else None) == allowed
    assert [AllowPolicy.of_kept(None).allows(b"x"), allowed.allows(b"q"), allowed.allows(b"x")] == [True, True, False]


def test_every_error_has_a_shape() -> None:
    for code, spec in ERRORS.items():
        shown = as_sqs(LmqError(code, "text"))
        assert (shown.kind.fault == "Receiver") is (shown.status >= 500)
        assert 400 <= shown.status <= 503
        if spec.http in (503, 504):
            assert shown.status in (500, 503), "SDKs repeat it"


def test_every_action_has_parameters_and_a_permission() -> None:
    assert SHAPES.keys() == PERMISSIONS.keys()
    assert len(SHAPES) == 23


@pytest.mark.parametrize(
    "given",
    [
        {"sqs_account": "1"},
        {"sqs_account": "00000000000x"},
        {"sqs_region": "a b"},
        {"sqs_region": ""},
        {"sqs_url": "https://h/path"},
        {"sqs_url": "https://h/"},
        {"sqs_ignore": ("policy", "x")},
        {"sqs": Address("127.0.0.1", 9980)},
    ],
)
def test_options_that_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="sqs"):
        NodeConfig(**given).validate()


def test_relaxed_limits_are_those_of_the_cluster() -> None:
    config = NodeConfig(sqs_limits="relaxed", sqs_url="https://h:1", sqs_ignore=("policy", "encryption"))
    config.validate()
    limits = limits_of(config)
    assert (limits.entries, limits.messages, limits.message_bytes) == (10_000, 10_000, (1, config.message_bytes_max))
    assert limits.visible_after_s is None
