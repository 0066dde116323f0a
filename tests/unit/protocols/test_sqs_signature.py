"""Signatures of requests to the SQS port, against those that botocore makes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any
from unittest import mock
from urllib.parse import urlencode, urlsplit

import botocore.session
import pytest
from botocore.auth import BaseSigner, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from lmqcluster.core import ApiKeys, Role, Token
from lmqcluster.node.access.access import Access, digest_of
from lmqcluster.node.access.sqs_keys import secret_access_key, sqs_key
from lmqcluster.protocols.sqs.errors import SqsError
from lmqcluster.protocols.sqs.shapes import SHAPES
from lmqcluster.protocols.sqs.signature import KEYS_MAX, Head, Signatures
from lmqcluster.wire.errors import LmqError

from ..node.test_access import tokens

SECRET = b"lmq_the secret of a token"
KEY_ID = "billing@shop"
KEY = secret_access_key(sqs_key(SECRET))
URL = "http://127.0.0.1:9324"
QUEUE = f"{URL}/000000000000/orders.fifo"
NOW_S = 1_790_000_000.0
PARAMETERS: dict[str, dict[str, Any]] = {
    "AddPermission": {"QueueUrl": QUEUE, "Label": "l", "AWSAccountIds": ["000000000000"], "Actions": ["*"]},
    "CancelMessageMoveTask": {"TaskHandle": "handle"},
    "ChangeMessageVisibility": {"QueueUrl": QUEUE, "ReceiptHandle": "r+/=", "VisibilityTimeout": 1},
    "ChangeMessageVisibilityBatch": {
        "QueueUrl": QUEUE,
        "Entries": [{"Id": "a", "ReceiptHandle": "r", "VisibilityTimeout": 2}],
    },
    "CreateQueue": {"QueueName": "orders.fifo", "Attributes": {"FifoQueue": "true"}, "tags": {"a": "b"}},
    "DeleteMessage": {"QueueUrl": QUEUE, "ReceiptHandle": "r"},
    "DeleteMessageBatch": {"QueueUrl": QUEUE, "Entries": [{"Id": "a", "ReceiptHandle": "r"}]},
    "DeleteQueue": {"QueueUrl": QUEUE},
    "GetQueueAttributes": {"QueueUrl": QUEUE, "AttributeNames": ["All"]},
    "GetQueueUrl": {"QueueName": "orders"},
    "ListDeadLetterSourceQueues": {"QueueUrl": QUEUE},
    "ListMessageMoveTasks": {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:q"},
    "ListQueueTags": {"QueueUrl": QUEUE},
    "ListQueues": {"QueueNamePrefix": "a b"},
    "PurgeQueue": {"QueueUrl": QUEUE},
    "ReceiveMessage": {"QueueUrl": QUEUE, "MessageAttributeNames": ["All"]},
    "RemovePermission": {"QueueUrl": QUEUE, "Label": "l"},
    "SendMessage": {"QueueUrl": QUEUE, "MessageBody": "caf\u00e9 \U0001f600 +&=\n"},
    "SendMessageBatch": {"QueueUrl": QUEUE, "Entries": [{"Id": "a", "MessageBody": "<x>"}]},
    "SetQueueAttributes": {"QueueUrl": QUEUE, "Attributes": {"DelaySeconds": "1"}},
    "StartMessageMoveTask": {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:q"},
    "TagQueue": {"QueueUrl": QUEUE, "Tags": {"a": "b c"}},
    "UntagQueue": {"QueueUrl": QUEUE, "TagKeys": ["a"]},
}


@dataclass(frozen=True)
class Sent:
    """A request as the port sees it."""

    head: Head
    body: bytes

    def header(self, name: str) -> str:
        """Return the only header of a name."""
        (value,) = (value for key, value in self.head.headers if key.decode().lower() == name)
        return value.decode()

    def changed(self, name: str, value: str | None) -> Sent:
        """Return the request with another value of a header; None removes it."""
        kept = [(key, old) for key, old in self.head.headers if key.decode().lower() != name]
        more = [] if value is None else [(name.encode(), value.encode())]
        return replace(self, head=self.head._replace(headers=kept + more))

    def with_head(self, **changes: Any) -> Sent:
        """Return the request with another method, path or query."""
        return replace(self, head=self.head._replace(**changes))


def sent(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Sent:
    """Return a request that a client is about to send."""
    parts = urlsplit(url)
    named = {"Host": parts.netloc, **headers}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    return Sent(Head(method, parts.path or "/", parts.query, raw), body)


class KeptError(Exception):
    """Ends a call whose request has been kept."""


@cache
def client() -> Any:
    """Return a new client."""
    session = botocore.session.Session()
    session.set_credentials(KEY_ID, KEY)
    return session.create_client(
        "sqs", "eu-central-1", endpoint_url=URL, config=Config(retries={"total_max_attempts": 1})
    )


def by_json(action: str) -> Sent:
    """Return the request that a new client sends for an action."""
    kept: list[Any] = []

    def keep(request: Any, **_more: Any) -> None:
        kept.append(request)
        raise KeptError

    events = client().meta.events
    events.register("before-send.sqs", keep)
    with at(NOW_S), pytest.raises(KeptError):
        getattr(client(), re.sub("([A-Z])", r"_\1", action).lower().lstrip("_"))(**PARAMETERS[action])
    events.unregister("before-send.sqs", keep)
    (request,) = kept
    headers = {name: value if isinstance(value, str) else value.decode() for name, value in request.headers.items()}
    body = request.body or b""
    return sent(request.method, request.url, headers, body if isinstance(body, bytes) else body.encode())


@contextmanager
def at(now_s: float) -> Iterator[None]:
    """Set botocore's clock."""
    moment = datetime.fromtimestamp(now_s, UTC).replace(tzinfo=None)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment):
        yield


def signed(
    signer: Callable[[Credentials], BaseSigner],
    method: str,
    url: str,
    body: bytes = b"",
    now_s: float = NOW_S,
    key: str = KEY,
    **headers: Any,
) -> Sent:
    """Return a request signed by a signer of botocore."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = AWSRequest(method, url, headers=named, data=body)
    with at(now_s):
        signer(Credentials(KEY_ID, key)).add_auth(request)
    prepared = request.prepare()
    return sent(method, prepared.url, dict(request.headers.items()), body)


def in_header(credentials: Credentials) -> SigV4Auth:
    return SigV4Auth(credentials, "sqs", "us-east-1")


def in_query(credentials: Credentials) -> SigV4QueryAuth:
    return SigV4QueryAuth(credentials, "sqs", "us-east-1", expires=3600)


def form(action: str) -> bytes:
    flat = {name: value for name, value in PARAMETERS[action].items() if isinstance(value, str)}
    return urlencode({"Action": action, "Version": "2012-11-05", **flat}).encode()


def by_query(action: str) -> Sent:
    kind = "application/x-www-form-urlencoded; charset=utf-8"
    return signed(in_header, "POST", f"{URL}/000000000000/q", form(action), Content_Type=kind)


def by_link(action: str) -> Sent:
    return signed(in_query, "GET", f"{URL}/000000000000/caf%C3%A9%2Bq?{form(action).decode().replace('+', '%20')}")


def access(*more: Token) -> Access:
    """Return the access control of a node with a token for the SQS port."""
    found = Access(None)
    worker = Token(KEY_ID.encode(), digest_of(SECRET), Role.WRITE, b".*", 1, 0, b"billing", sqs_key(SECRET))
    found.follow(tokens(worker, *more), ApiKeys(), 0)
    return found


@pytest.fixture
def signatures() -> Signatures:
    """The signatures that a port without TLS takes."""
    return Signatures(access(), is_encrypted=False)


def check(signatures: Signatures, request: Sent, now_s: float = NOW_S) -> str:
    """Return the name of the client that has signed a request."""
    claim = signatures.recognize(request.head, now_s)
    return signatures.verify(claim, request.body).name


def refusal(signatures: Signatures, request: Sent, now_s: float = NOW_S) -> tuple[str, str, int]:
    """Return shape, code and status of the error for a request."""
    with pytest.raises(SqsError) as caught:
        check(signatures, request, now_s)
    kind = caught.value.kind
    return kind.shape, kind.code, kind.status


MISMATCH = ("InvalidSignatureException", "SignatureDoesNotMatch", 403)
INCOMPLETE = ("IncompleteSignatureException", "IncompleteSignature", 400)
UNKNOWN = ("UnrecognizedClientException", "InvalidClientTokenId", 403)
MISSING = ("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403)
FORMS = [pytest.param(made, id=made.__name__) for made in (by_json, by_query, by_link)]


def test_all_actions_are_signed() -> None:
    assert PARAMETERS.keys() == SHAPES.keys()


@pytest.mark.parametrize("made", FORMS)
@pytest.mark.parametrize("action", sorted(PARAMETERS))
def test_a_signature_of_botocore_is_right_and_no_part_of_the_request_may_change(
    made: Callable[[str], Sent], action: str, signatures: Signatures
) -> None:
    request = made(action)
    assert check(signatures, request) == KEY_ID
    head, body = request.head, request.body
    changed = [
        request.with_head(method="PUT"),
        request.with_head(path=head.path + "x"),
        request.with_head(query=head.query + "&x=1" if head.query else "x=1"),
        request.changed("host", "127.0.0.1:9325"),
        replace(request, body=body + b" "),
        replace(request, body=body[:-1] if body else b"Action=DeleteQueue"),
    ]
    if made is not by_link:
        authorization = request.header("authorization")
        changed += [
            request.changed("authorization", authorization[:-1] + ("0" if authorization[-1] != "0" else "1")),
            request.changed(
                "authorization", authorization.replace("/us-east-1/", "/us-east-2/").replace("/eu-", "/us-")
            ),
            request.changed("x-amz-date", datetime.fromtimestamp(NOW_S + 1, UTC).strftime("%Y%m%dT%H%M%SZ")),
        ]
    else:
        changed += [
            request.with_head(query=head.query.replace(f"Action={action}", "Action=PurgeQueue2")),
            request.with_head(query=head.query.replace("X-Amz-Expires=3600", "X-Amz-Expires=3601")),
            request.with_head(query=head.query[:-1] + ("0" if head.query[-1] != "0" else "1")),
        ]
    if made is by_json:
        changed += [
            request.changed("x-amz-target", "AmazonSQS.PurgeQueue2"),
            request.changed("x-amz-target", None),
            request.changed("content-type", "text/plain"),
        ]
    for one in changed:
        assert refusal(signatures, one) == MISMATCH
    assert check(signatures, request) == KEY_ID


def test_a_wrong_secret_is_refused_and_an_unknown_key_needs_no_body(signatures: Signatures) -> None:
    wrong = signed(in_header, "POST", URL, b"Action=ListQueues", key="x" * 43)
    assert refusal(signatures, wrong) == MISMATCH
    other = Signatures(Access(b"an administrator's token"), is_encrypted=False)
    with pytest.raises(SqsError) as refused:
        other.recognize(by_json("ListQueues").head, NOW_S)
    assert tuple(refused.value.kind) == UNKNOWN


def test_a_token_without_a_key_and_an_expired_one_are_unknown() -> None:
    plain = Access(None)
    plain.follow(tokens(Token(KEY_ID.encode(), digest_of(SECRET), Role.WRITE, b".*", 1, 0, b"b")), ApiKeys(), 0)
    assert refusal(Signatures(plain, is_encrypted=False), by_json("ListQueues")) == UNKNOWN
    brief = Token(KEY_ID.encode(), digest_of(SECRET), Role.WRITE, b".*", 1, 100, b"b", sqs_key(SECRET))
    found, known = Access(None), tokens(brief)
    found.follow(known, ApiKeys(), 99)
    taken = Signatures(found, is_encrypted=False)
    assert check(taken, by_json("ListQueues")) == KEY_ID
    found.expire(known, 100)
    assert refusal(taken, by_json("ListQueues")) == UNKNOWN


def test_a_new_token_of_the_same_name_makes_old_signatures_wrong(signatures: Signatures) -> None:
    request = by_json("ListQueues")
    assert check(signatures, request) == KEY_ID
    renewed = Token(KEY_ID.encode(), digest_of(b"new"), Role.WRITE, b".*", 1, 0, b"b", sqs_key(b"new"))
    signatures._access.follow(tokens(renewed), ApiKeys(), 0)
    assert refusal(signatures, request) == MISMATCH


def test_a_node_that_does_not_know_the_tokens_says_so() -> None:
    found = access()
    found.follow(tokens(), ApiKeys(), 0)
    found.distrust()
    with pytest.raises(LmqError) as refused:
        Signatures(found, is_encrypted=False).recognize(by_json("ListQueues").head, NOW_S)
    assert refused.value.code == "no_leader"


@pytest.mark.parametrize(("shift_s", "is_right"), [(-901, False), (-900, True), (900, True), (901, False)])
def test_the_clock_of_a_client_may_differ_by_15_minutes(
    shift_s: int,
    is_right: bool,
    signatures: Signatures,
) -> None:
    request = by_json("ListQueues")
    if is_right:
        assert check(signatures, request, NOW_S + shift_s) == KEY_ID
        return
    with pytest.raises(SqsError, match="Signature expired" if shift_s > 0 else "not yet current") as refused:
        check(signatures, request, NOW_S + shift_s)
    assert tuple(refused.value.kind) == MISMATCH


def test_a_link_is_valid_for_its_time(signatures: Signatures) -> None:
    request = by_link("ListQueues")
    for at_s in (NOW_S - 900, NOW_S, NOW_S + 3600):
        assert check(signatures, request, at_s) == KEY_ID
    for at_s in (NOW_S - 901, NOW_S + 3601):
        assert refusal(signatures, request, at_s) == MISMATCH
    for expiry in ("0", "604801", "-1", "1e3", "", "9" * 400):
        bad = request.head.query.replace("X-Amz-Expires=3600", f"X-Amz-Expires={expiry}")
        assert refusal(signatures, request.with_head(query=bad)) == INCOMPLETE


def test_a_posted_form_can_be_signed_in_the_query_string(signatures: Signatures) -> None:
    with at(NOW_S):
        request = signed(in_query, "POST", f"{URL}/q?x=%2B+a&b", b"")
    assert check(signatures, request) == KEY_ID
    assert refusal(signatures, replace(request, body=b"Action=ListQueues")) == MISMATCH


def test_a_request_without_a_signature_lacks_a_token(signatures: Signatures) -> None:
    request = by_json("ListQueues")
    assert refusal(signatures, request.changed("authorization", None)) == MISSING
    old = request.changed("authorization", None).with_head(
        query="AWSAccessKeyId=billing&SignatureVersion=2&SignatureMethod=HmacSHA256&Signature=x"
    )
    assert refusal(signatures, old) == MISSING


MALFORMED = [
    "",
    "Bearer lmq_x",
    "AWS4-ECDSA-P256-SHA256 Credential=a/20260921/r/sqs/aws4_request, SignedHeaders=host, Signature=00",
    "AWS4-HMAC-SHA256",
    "AWS4-HMAC-SHA256 Credential=a",
    "AWS4-HMAC-SHA256 {0}, Signature=0",
    "AWS4-HMAC-SHA256 {0}, {1}, Signature=",
    "AWS4-HMAC-SHA256 {0}, {0}, {1}, Signature=0",
    "AWS4-HMAC-SHA256 {0}, {1}, Signature=0, More=1",
    "AWS4-HMAC-SHA256 Credential=a/20260921/r/sqs, {1}, Signature=0",
    "AWS4-HMAC-SHA256 Credential=/20260921/r/sqs/aws4_request, {1}, Signature=0",
    "AWS4-HMAC-SHA256 {0}, SignedHeaders=host;host;x-amz-target, Signature=0",
]


@pytest.mark.parametrize("value", MALFORMED)
def test_a_malformed_header_is_incomplete(value: str, signatures: Signatures) -> None:
    request = by_json("ListQueues")
    credential, names, _signature = request.header("authorization").removeprefix("AWS4-HMAC-SHA256 ").split(", ")
    written = value.replace("{0}", credential).replace("{1}", names)
    assert refusal(signatures, request.changed("authorization", written)) == (MISSING if not value else INCOMPLETE)


def test_a_header_that_is_there_twice_is_incomplete(signatures: Signatures) -> None:
    request = by_json("ListQueues")
    for name in ("authorization", "x-amz-date"):
        twice = [*request.head.headers, (name.encode(), request.header(name).encode())]
        assert refusal(signatures, request.with_head(headers=twice)) == INCOMPLETE
    both = request.with_head(query=by_link("ListQueues").head.query)
    assert refusal(signatures, both) == INCOMPLETE
    link = by_link("ListQueues")
    assert refusal(signatures, link.with_head(query=link.head.query + "&X-Amz-Date=20260921T000000Z")) == INCOMPLETE


@pytest.mark.parametrize("date", ["", "today", "20261301T000000Z", "20260921T250000Z", "0000", "9" * 500])
def test_a_date_is_needed(date: str, signatures: Signatures) -> None:
    request = by_json("ListQueues")
    assert refusal(signatures, request.changed("x-amz-date", date or None)) in {INCOMPLETE, MISMATCH}


def test_the_header_date_stands_in_for_amazons(signatures: Signatures) -> None:
    moment = datetime.fromtimestamp(NOW_S, UTC)
    for date in (moment.strftime("%a, %d %b %Y %H:%M:%S GMT"), moment.strftime("%Y%m%dT%H%M%SZ")):
        request = signed(in_header, "POST", URL, b"Action=ListQueues", Date=date)
        if request.header("authorization").find("x-amz-date") < 0:
            assert check(signatures, request) == KEY_ID
    without = by_json("ListQueues").changed("x-amz-date", None)
    assert refusal(signatures, without) in {INCOMPLETE, MISMATCH}


def test_the_scope_is_this_service_and_the_day_of_the_date(signatures: Signatures) -> None:
    request = by_json("ListQueues")
    authorization = request.header("authorization")
    day = datetime.fromtimestamp(NOW_S, UTC).strftime("%Y%m%d")
    for old, new in (
        ("/sqs/", "/sns/"),
        ("/aws4_request", "/aws5_request"),
        (f"/{day}/", "/20200101/"),
        ("/eu-central-1/", "/../"),
        ("/eu-central-1/", f"/{'x' * 65}/"),
    ):
        changed = authorization.replace(old, new)
        assert changed != authorization
        assert refusal(signatures, request.changed("authorization", changed)) == MISMATCH


def test_host_and_target_must_be_signed(signatures: Signatures) -> None:
    def unsigned(name: str) -> Sent:
        request = by_json("ListQueues")
        text = request.header("authorization")
        start = text.index("SignedHeaders=") + len("SignedHeaders=")
        names = [one for one in text[start : text.index(", Signature=")].split(";") if one != name]
        return request.changed("authorization", f"{text[:start]}{';'.join(names)}{text[text.index(', Signature=') :]}")

    for name in ("host", "x-amz-target"):
        with pytest.raises(SqsError, match=f"'{name}' must be a signed header") as refused:
            signatures.recognize(unsigned(name).head, NOW_S)
        assert tuple(refused.value.kind) == MISMATCH


def test_values_are_signed_without_needless_spaces_and_headers_of_one_name_as_a_list(signatures: Signatures) -> None:
    request = signed(in_header, "POST", URL, b"", X_Amz_Extra="a b,c")
    assert check(signatures, request.changed("x-amz-extra", "  a   b,c ")) == KEY_ID
    two = [one for one in request.head.headers if one[0].lower() != b"x-amz-extra"]
    two += [(b"X-AMZ-EXTRA", b"a b"), (b"x-amz-extra", b"c")]
    assert check(signatures, request.with_head(headers=two)) == KEY_ID


def test_a_hash_of_the_body_must_be_right_and_may_be_left_out_under_tls() -> None:
    plain, encrypted = (Signatures(access(), is_encrypted=one) for one in (False, True))
    body = b"Action=ListQueues"
    for named, results in (("UNSIGNED-PAYLOAD", (False, True)), ("0" * 64, (False, False))):
        with mock.patch.object(SigV4Auth, "payload", return_value=named):
            request = signed(in_header, "POST", URL, body, X_Amz_Content_Sha256=named)
        for signatures, is_right in zip((plain, encrypted), results, strict=True):
            if is_right:
                assert check(signatures, request) == KEY_ID
            else:
                assert refusal(signatures, request) == MISMATCH


def test_guesses_get_no_place_among_the_signing_keys(signatures: Signatures) -> None:
    request = by_json("ListQueues")
    text = request.header("authorization")
    for number in range(2 * KEYS_MAX):
        region = f"/region-{number}/"
        for guess in (text.replace("/eu-central-1/", region), text.replace(f"={KEY_ID}/", f"=guess-{number}/")):
            assert refusal(signatures, request.changed("authorization", guess)) in {MISMATCH, UNKNOWN}
    assert len(signatures) == 0
    assert check(signatures, request) == KEY_ID
    assert len(signatures) == 1


def test_the_signing_keys_of_one_client_are_bounded(signatures: Signatures) -> None:
    for number in range(KEYS_MAX + 20):

        def signer(credentials: Credentials, region: str = f"region-{number}") -> SigV4Auth:
            return SigV4Auth(credentials, "sqs", region)

        request = signed(signer, "GET", f"{URL}/?Action=x")
        assert check(signatures, request) == KEY_ID
    assert len(signatures) == KEYS_MAX


def test_a_signature_of_many_headers_costs_no_more_than_the_head(signatures: Signatures) -> None:
    request = by_json("ListQueues")
    text = request.header("authorization")
    start, end = text.index("SignedHeaders=") + len("SignedHeaders="), text.index(", Signature=")
    many = ";".join(f"h{number}" for number in range(800))
    assert refusal(signatures, request.changed("authorization", f"{text[:start]}host;{many}{text[end:]}")) == MISMATCH
    again = ";".join(["host"] * 800)
    assert refusal(signatures, request.changed("authorization", f"{text[:start]}{again}{text[end:]}")) == INCOMPLETE
    headers: dict[str, Any] = {f"h{number:03}": "v" * 250 for number in range(100)}
    large = signed(in_header, "POST", URL, **headers)
    claim = signatures.recognize(large.head, NOW_S)
    assert len(claim.canonical) < 40_000
    assert signatures.verify(claim, large.body).name == KEY_ID


def test_any_input_is_accepted_or_refused(signatures: Signatures) -> None:
    """Damages requests at random; whatever is still accepted has what was signed."""
    source = random.Random(7)
    originals = [made(action) for made in (by_json, by_query, by_link) for action in ("SendMessage", "ListQueues")]
    alphabet = "".join(map(chr, range(32, 127))) + "\x00\n\t\u00e9\udcff"

    def damaged(text: str) -> str:
        place = source.randrange(len(text) + 1)
        length = source.choice((0, 1, 1, 2, 8))
        more = "".join(source.choice(alphabet) for _ in range(source.choice((0, 1, 3))))
        return text[:place] + more + text[place + length :]

    accepted = 0
    for _round in range(4_000):
        request = source.choice(originals)
        method, path, query, headers = request.head
        pairs = [(name.decode(), value.decode()) for name, value in headers]
        part = source.randrange(4)
        if part == 0:
            path = damaged(path)
        elif part == 1:
            query = damaged(query)
        else:
            place = source.randrange(len(pairs))
            name, value = pairs[place]
            pairs[place] = (name, damaged(value)) if part == 2 else (damaged(name), value)
        raw = [
            (name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape")) for name, value in pairs
        ]
        try:
            signatures.verify(signatures.recognize(Head(method, path, query, raw), NOW_S), request.body)
            accepted += 1
        except SqsError:
            continue
    assert 0 < accepted < 2_000
    assert len(signatures) <= 3
