"""Who may use the SQS port: signatures with the keys of tokens, strangers, roles, and the ends of tokens."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from .cluster import Cluster, NodeProcess, wait_for
from .programs import run_here
from .sqs_http import SqsHttp

JSON = "Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"


class Guarded:
    """A node with tokens, and their keys by name."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        root = run_here("--node", node.http, "token", "create", "root", "--role", "admin").out.strip()
        self._known = {"LMQ_TOKEN": root}
        self.keys: dict[str, str] = {}

    def token(self, name: str, *options: str) -> None:
        """Create a token for the SQS port."""
        made = self.admin("token", "create", name, "--sqs", "--json", *options)
        self.keys[name] = json.loads(made)["secret_access_key"]

    def admin(self, *words: str) -> str:
        """Run lmq-admin; return its output."""
        done = run_here("--node", self.node.http, *words, environment=self._known)
        assert done.code == 0, done.err
        return done.out

    def client(self, name: str, key: str | None = None, **more: Any) -> Any:
        """Return a client of AWS with the key of a token, or another one."""
        config = Config(retries={"total_max_attempts": 1}, parameter_validation=False, **more)
        secret = self.keys.get(name, "none") if key is None else key
        return boto3.client(
            "sqs",
            endpoint_url=f"http://{self.node.sqs}",
            region_name="us-east-1",
            aws_access_key_id=name,
            aws_secret_access_key=secret,
            config=config,
        )


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "front ends"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    arguments = ("--front-ends", str(request.param)) if request.param else ()
    with Cluster(1, directory=tmp_path_factory.mktemp("signatures"), arguments=arguments) as cluster:
        found = Guarded(cluster[0])
        for name, role, queues in (("writer", "write", ".*"), ("reader", "read", ".*"), ("mine", "admin", "^mine")):
            found.token(name, "--role", role, "--queues", queues)
        yield found


def error_of(call: Any, **parameters: Any) -> tuple[int, str, str]:
    """Return status, class and code of the error of a call."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    answer: Any = caught.value.response
    code = answer["Error"].get("QueryErrorCode") or answer["Error"]["Code"]
    return answer["ResponseMetadata"]["HTTPStatusCode"], code, answer["Error"]["Code"]


def test_a_token_signs_and_its_role_and_queues_count(guarded: Guarded) -> None:
    writer, reader, mine = (guarded.client(name) for name in ("writer", "reader", "mine"))
    urls = {name: writer.create_queue(QueueName=name)["QueueUrl"] for name in ("mine-1", "others-1")}
    writer.send_message(QueueUrl=urls["mine-1"], MessageBody="x")
    assert reader.list_queues()["QueueUrls"] == sorted(urls.values())
    assert mine.list_queues()["QueueUrls"] == [urls["mine-1"]]
    denied = (403, "AccessDeniedException", "AccessDenied")
    for call, parameters in (
        (reader.send_message, {"QueueUrl": urls["mine-1"], "MessageBody": "x"}),
        (writer.purge_queue, {"QueueUrl": urls["mine-1"]}),
        (mine.receive_message, {"QueueUrl": urls["others-1"]}),
    ):
        status, _shape, code = error_of(call, **parameters)
        assert (status, code) == (denied[0], denied[2])
    (message,) = mine.receive_message(QueueUrl=urls["mine-1"])["Messages"]
    assert message["Body"] == "x"
    mine.purge_queue(QueueUrl=urls["mine-1"])


def test_strangers_get_the_errors_of_aws(guarded: Guarded) -> None:
    assert error_of(guarded.client("stranger").list_queues)[::2] == (403, "InvalidClientTokenId")
    assert error_of(guarded.client("writer", "wrong").list_queues)[::2] == (403, "SignatureDoesNotMatch")
    # The token of another one signs with another key.
    assert error_of(guarded.client("root", guarded.keys["writer"]).list_queues)[::2] == (403, "InvalidClientTokenId")
    unsigned = guarded.client("writer", signature_version=UNSIGNED)
    assert error_of(unsigned.list_queues)[::2] == (403, "MissingAuthenticationToken")
    for form in ("json", "query"):
        answer = SqsHttp(guarded.node.sqs, form).send("ListQueues", {})
        assert answer.status == 403
        assert b"MissingAuthenticationToken" in answer.body
        assert answer.headers["date"]
    answer = SqsHttp(guarded.node.sqs, "json").send("ListQueues", {})
    assert answer.headers["x-amzn-query-error"] == "MissingAuthenticationToken;Sender"


def test_the_clock_of_a_refusal_lets_clients_correct_theirs(guarded: Guarded) -> None:
    client = guarded.client("writer")

    def make_late(request: Any, **_more: Any) -> None:
        del request.headers["X-Amz-Date"]
        request.headers["X-Amz-Date"] = time.strftime("%Y%m%dT000000Z", time.gmtime(time.time() - 86_400))

    client.meta.events.register("before-send.sqs", make_late)
    with pytest.raises(ClientError) as caught:
        client.list_queues()
    assert caught.value.response["Error"]["Code"] == "SignatureDoesNotMatch"


def test_links_are_signed_too(guarded: Guarded) -> None:
    client = guarded.client("writer")
    url = client.create_queue(QueueName="linked")["QueueUrl"]
    signer = client._request_signer
    link = signer.generate_presigned_url(
        {
            "method": "GET",
            "url": f"{url}?Action=SendMessage&MessageBody=a%20b",
            "body": b"",
            "headers": {},
            "context": {},
        },
        operation_name="SendMessage",
        expires_in=60,
    )
    path = link.split(guarded.node.sqs)[1]
    http = SqsHttp(guarded.node.sqs)
    assert http.raw("GET", path).status == 200
    assert http.raw("GET", path.replace("a%20b", "a%20c")).status == 403
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "a b"


def answered(address: str, head: str) -> bytes:
    """Return the answer to a head whose body never comes."""
    host, _colon, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode())
        return connection.recv(65536)


@pytest.mark.parametrize("kind", [JSON, FORM])
def test_the_body_of_a_stranger_is_not_awaited(guarded: Guarded, kind: str) -> None:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{stamp[:8]}/us-east-1/sqs/aws4_request"
    begin = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\nX-Amz-Date: {stamp}\r\n{kind}"
    names = "SignedHeaders=host;x-amz-target" if kind == JSON else "SignedHeaders=host"
    for authorization in (
        "",
        "Authorization: Bearer lmq_x\r\n",
        f"Authorization: AWS4-HMAC-SHA256 Credential=stranger/{scope}, {names}, Signature={'0' * 64}\r\n",
        f"Authorization: AWS4-HMAC-SHA256 Credential=writer/{scope}, SignedHeaders=x, Signature={'0' * 64}\r\n",
    ):
        answer = answered(guarded.node.sqs, f"{begin}{authorization}\r\n")
        assert answer.split(b"\r\n")[0].split()[1] in {b"403", b"400"}, answer


def test_what_is_no_request_of_this_protocol_is_not_awaited_either(guarded: Guarded) -> None:
    answer = answered(guarded.node.sqs, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404"), answer


def test_large_heads_are_refused(guarded: Guarded) -> None:
    for more in ("Authorization: AWS4-HMAC-SHA256 " + "a" * 5000, "X-Long: " + "a" * 40_000, "a: b\r\n" * 200 + "c: d"):
        answer = answered(guarded.node.sqs, f"POST / HTTP/1.1\r\nHost: x\r\n{JSON}{more}\r\nContent-Length: 0\r\n\r\n")
        assert answer.split(b"\r\n")[0].split()[1] in {b"400", b"431"}, answer


def test_a_deleted_token_is_refused_at_once_and_its_waits_end(guarded: Guarded) -> None:
    guarded.token("brief", "--role", "write")
    client = guarded.client("brief", read_timeout=60)
    url = client.create_queue(QueueName="brief")["QueueUrl"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        wait_for(lambda: "brief" in guarded.admin("client", "ls", "--json"), "the receive waits")
        began_s = time.monotonic()
        guarded.admin("token", "delete", "brief", "--yes")
        try:
            answer = waiting.result(30)
        except ClientError as exc:
            answer = exc.response
    assert "Messages" not in answer
    assert time.monotonic() - began_s < 15
    assert error_of(client.list_queues)[::2] == (403, "InvalidClientTokenId")
    guarded.token("brief", "--role", "read", "--principal", "brief")
    assert error_of(client.list_queues)[::2] == (403, "SignatureDoesNotMatch")
    assert guarded.client("brief").list_queues()["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_an_expired_token_is_refused(guarded: Guarded) -> None:
    guarded.token("late", "--role", "read", "--expires-in", "2s")
    client = guarded.client("late")
    client.list_queues()

    def is_refused() -> bool:
        try:
            client.list_queues()
        except ClientError as exc:
            return bool(exc.response["Error"]["Code"] == "InvalidClientTokenId")
        return False

    wait_for(is_refused, "the token has expired")
