"""Small clients of the SQS port that show every byte of an answer: in JSON, and in the older form with queries and XML."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

__all__ = ["Answer", "SqsHttp", "SqsRefusedError", "flat"]

_LISTS = {
    "AttributeNames": "AttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "MessageAttributeNames": "MessageAttributeName",
    "TagKeys": "TagKey",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
}
_MAPS = {
    "Attributes": ("Attribute", "Name"),
    "Tags": ("Tag", "Key"),
    "tags": ("Tag", "Key"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name"),
}
_MANY = {
    "Message": "Messages",
    "QueueUrl": "QueueUrls",
    "BatchResultErrorEntry": "Failed",
    "ListMessageMoveTasksResultEntry": "Results",
}
_PAIRS = {
    "Attribute": ("Attributes", "Name"),
    "MessageAttribute": ("MessageAttributes", "Name"),
    "Tag": ("Tags", "Key"),
}


class SqsRefusedError(Exception):
    """An error that the port answered.

    Attributes:
        code: in the older form, the same for both.
        text: the message.
        status: of HTTP.
    """

    def __init__(self, code: str, text: str, status: int) -> None:
        super().__init__(f"{status} {code}: {text}")
        self.code = code
        self.text = text
        self.status = status


class Answer:
    """An answer: status, headers with lower-case names, body."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self) -> str:
        return f"<{self.status} {self.body[:300]!r}>"


class SqsHttp:
    """Sends requests to one address; `form` is ``json`` or ``query``."""

    def __init__(self, address: str, form: str = "json", headers: Mapping[str, str] | None = None) -> None:
        self.address = address
        self.form = form
        self.headers = dict(headers or {})

    def raw(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """Send any request."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, path, body=body, headers=self.headers | dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def send(self, action: str, parameters: Mapping[str, Any], path: str = "/") -> Answer:
        """Send an action in the form of this client."""
        if self.form == "json":
            headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
            return self.raw("POST", path, json.dumps(parameters, default=_coded).encode(), headers)
        body = urlencode({"Action": action, "Version": "2012-11-05", **flat(action, parameters)}).encode()
        return self.raw("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})

    def __call__(self, action: str, path: str = "/", /, **parameters: Any) -> dict[str, Any]:
        """Return the output of an action, in the layout of JSON with all values as text; raise `SqsRefusedError`."""
        answer = self.send(action, parameters, path)
        assert len(answer.headers["x-amzn-requestid"]) == 36
        assert answer.headers["date"]
        if self.form == "json":
            return _json_output(answer)
        return _xml_output(action, answer)


def _coded(value: Any) -> str:
    return base64.b64encode(value).decode()


def flat(action: str, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return parameters as a query has them."""
    found: dict[str, str] = {}
    for name, value in parameters.items():
        if name == "Entries":
            for number, entry in enumerate(value, 1):
                found |= {f"{action}RequestEntry.{number}.{key}": one for key, one in flat(action, entry).items()}
        elif name in _LISTS:
            found |= {f"{_LISTS[name]}.{number}": one for number, one in enumerate(value, 1)}
        elif name in _MAPS:
            element, key = _MAPS[name]
            for number, (part, one) in enumerate(value.items(), 1):
                found[f"{element}.{number}.{key}"] = part
                if isinstance(one, dict):
                    for member, text in one.items():
                        found[f"{element}.{number}.Value.{member}"] = _coded(text) if isinstance(text, bytes) else text
                else:
                    found[f"{element}.{number}.Value"] = one
        else:
            found[name] = str(value)
    return found


def _json_output(answer: Answer) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    if answer.status == 200:
        return _texts(json.loads(answer.body)) if answer.body else {}
    value = json.loads(answer.body)
    assert value["__type"].startswith("com.amazonaws.sqs#")
    code, fault = answer.headers["x-amzn-query-error"].split(";")
    assert fault == ("Receiver" if answer.status >= 500 else "Sender")
    raise SqsRefusedError(code, value["message"], answer.status)


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _texts(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_texts(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


def _xml_output(action: str, answer: Answer) -> dict[str, Any]:
    assert answer.headers["content-type"] == "text/xml"
    root = ET.fromstring(answer.body)
    for element in root.iter():
        namespace, _brace, name = element.tag.rpartition("}")
        assert namespace == "{http://queue.amazonaws.com/doc/2012-11-05/"
        element.tag = name
    identifier = root.findtext("ResponseMetadata/RequestId") or root.findtext("RequestId")
    assert identifier == answer.headers["x-amzn-requestid"]
    if answer.status == 200:
        assert root.tag == f"{action}Response"
        result = root.find(f"{action}Result")
        return {} if result is None else _members(action, result)
    assert root.tag == "ErrorResponse"
    assert root.findtext("Error/Type") == ("Receiver" if answer.status >= 500 else "Sender")
    raise SqsRefusedError(root.findtext("Error/Code") or "", root.findtext("Error/Message") or "", answer.status)


def _members(action: str, element: ET.Element) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for child in element:
        name = child.tag
        if name in _PAIRS:
            target, key = _PAIRS[name]
            value = child.find("Value")
            assert value is not None
            shown = _members(action, value) if len(value) else value.text or ""
            found.setdefault(target, {})[child.findtext(key)] = shown
        elif name == "QueueUrl" and action.startswith("List"):
            found.setdefault("queueUrls" if action == "ListDeadLetterSourceQueues" else "QueueUrls", []).append(
                child.text
            )
        elif name in _MANY and len(child):
            found.setdefault(_MANY[name], []).append(_members(action, child))
        elif name == f"{action}ResultEntry":
            found.setdefault("Successful", []).append(_members(action, child))
        else:
            found[name] = child.text or ""
    return found
