"""The HTTP API of one node for the programs: JSON in, JSON out, failures as errors with an exit code."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from lmqcluster.client.transport.probe import Answers, Speaks, what_answers
from lmqcluster.wire.address import Address
from lmqcluster.wire.errors import ERRORS, LmqError, Outcome

from ..errors import CliError, ExitCode
from ..stale import note_stale
from .credentials import credentials
from .http_connections import NotConnectedError, opener

__all__ = ["Api"]

TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
_READY: Final = "/readyz"
_FAILED: Final = "[-]"


class Api:
    """The API of the node at an HTTP address ``HOST:PORT``, with `credentials`. Blocking; every call has a deadline."""

    def __init__(self, address: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self._timeout_s = timeout_s
        found = credentials()
        self._base = f"{found.scheme}://{address}"
        self._headers = found.headers
        self._opener = opener(found.tls)

    def show_token(self, token: str) -> None:
        """Authenticate with this token from now on."""
        self._headers = {**self._headers, "Authorization": f"Bearer {token}"}

    def get(self, path: str) -> Any:
        """GET a path and return the decoded JSON.

        Raises:
            LmqError: the node answered with an error.
            CliError: the node could not be reached, or its answer is not valid.
        """
        return self._request("GET", path)

    def get_bytes(self, path: str) -> bytes:
        """GET a path and return the raw body. Raises the errors of `get`."""
        return self._send(urllib.request.Request(f"{self._base}{path}", headers=self._headers), self._timeout_s)

    def ready(self) -> bool:
        """Return whether the node is ready to serve requests. Never raises."""
        try:
            with self._opener.open(f"{self._base}{_READY}", timeout=self._timeout_s) as response:
                return bool(response.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def check_alive(self, *, ready: bool = False) -> None:
        """Check that the node answers, or with `ready` that it is ready. Raises the errors of `get`."""
        self.get_bytes(_READY if ready else "/livez")

    def post(self, path: str, body: object, *, timeout_s: float | None = None) -> Any:
        """POST a JSON body; return the decoded JSON of the answer, ``None`` if it is empty. Raises the errors of `get`."""
        return self._request("POST", path, body, timeout_s=timeout_s)

    def patch(self, path: str, body: object) -> Any:
        """PATCH with a JSON body. Raises the errors of `get`."""
        return self._request("PATCH", path, body)

    def put(self, path: str, body: object) -> Any:
        """PUT a JSON body. Raises the errors of `get`."""
        return self._request("PUT", path, body)

    def delete(self, path: str, body: object = None) -> Any:
        """DELETE a path. Raises the errors of `get`."""
        return self._request("DELETE", path, body)

    @staticmethod
    def segment(name: str) -> str:
        """Return a queue name as one path segment."""
        # surrogateescape restores the bytes of a command-line argument that is not UTF-8.
        return urllib.parse.quote(name.encode(errors="surrogateescape"), safe="")

    def _request(self, method: str, path: str, body: object = None, *, timeout_s: float | None = None) -> Any:
        headers = {"Accept": "application/json", **self._headers}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{self._base}{path}", data=data, headers=headers, method=method)
        return self._decode(self._send(request, timeout_s or self._timeout_s))

    def _send(self, request: urllib.request.Request, timeout_s: float) -> bytes:
        method = request.get_method()
        try:
            with self._opener.open(request, timeout=timeout_s) as response:
                answer: bytes = response.read(_ANSWER_BYTES_MAX)
                if response.headers.get("x-lmq-stale") == "true":
                    note_stale(self.address)
                return answer
        except urllib.error.HTTPError as exc:
            raise self._problem(exc, request.selector) from exc
        except TimeoutError as exc:
            raise self._timed_out(method) from exc
        except urllib.error.URLError as exc:
            if isinstance(exc.reason, TimeoutError):
                raise self._timed_out(method) from exc
            if isinstance(exc.reason, ssl.SSLCertVerificationError):
                raise CliError(f"no TLS with {self.address}: {exc.reason}", ExitCode.NOT_AUTHORISED) from exc
            if not isinstance(exc.reason, (ConnectionRefusedError, NotConnectedError)):
                self._raise_if_wrong_port()
            if isinstance(exc.reason, ssl.SSLError):
                raise CliError(f"no TLS with {self.address}: {exc.reason}", ExitCode.NOT_AUTHORISED) from exc
            raise self._unreachable(exc.reason) from exc
        except (OSError, http.client.HTTPException) as exc:
            self._raise_if_wrong_port()
            # The connection broke after the request was sent, so the change may have been made.
            if method == "GET":
                raise self._unreachable(exc) from exc
            text = f"{self.address} closed the connection without an answer; the change may or may not have been made"
            raise CliError(text, ExitCode.UNKNOWN) from exc

    def _decode(self, answer: bytes) -> Any:
        if not answer:
            return None
        try:
            return json.loads(answer)
        except ValueError as exc:
            text = f"{self.address} did not answer with JSON; check that it is the HTTP address of an lmqcluster node"
            raise CliError(text, ExitCode.UNAVAILABLE) from exc

    def _problem(self, answer: urllib.error.HTTPError, path: str) -> Exception:
        retryable: bool | None
        outcome: Outcome | None
        with answer:
            body = answer.read(_ANSWER_BYTES_MAX)
        if path == _READY and answer.code == 503:
            return self._not_ready(body)
        try:
            problem = json.loads(body)
            code, detail = problem["code"], problem.get("detail") or problem.get("title") or ""
            retryable, outcome = bool(problem["retryable"]), Outcome(problem["outcome"])
        except (ValueError, KeyError, TypeError, AttributeError):
            # LMQ's own routes have empty bodies; this header says why.
            code, _colon, detail = (answer.headers.get("x-lmq-error") or "").partition(": ")
            retryable, outcome = None, None
        if code == "unauthorized" and "Authorization" not in self._headers:
            detail = f"{detail}; pass yours with --token-file or LMQ_TOKEN_FILE"
        if code in ERRORS:
            return LmqError(code, f"{self.address}: {detail}", retryable=retryable, outcome=outcome)
        text = f"{self.address} answered {answer.code} {answer.reason} to {path.partition('?')[0]}"
        return CliError(text, _EXIT_OF_STATUS.get(answer.code, ExitCode.BUG))

    def _not_ready(self, body: bytes) -> CliError:
        """Return the error for a node that is not ready, with the first check that failed: others fail because of it."""
        lines = body.decode(errors="replace").splitlines()
        failed = next((line for line in lines if line.startswith(_FAILED)), f"{_FAILED}it gives no reason")
        reason = failed.removeprefix(_FAILED).replace(" failed", "", 1)
        return CliError(f"{self.address} is not ready ({reason}); lmq-admin check says more", ExitCode.UNAVAILABLE)

    def _raise_if_wrong_port(self) -> None:
        """Identify the server after a connection failed. A server that is no node's HTTP port has changed nothing."""
        address = Address.parse(self.address)
        wanted = Answers(Speaks.HTTP, tls=self._base.startswith("https:"))
        found = what_answers(address.host, address.port)
        if found is None or not found.is_other_than(wanted):
            return
        if found.speaks is not None and found.speaks is not wanted.speaks:
            advice = "--node takes the HTTP address of a node (port 9980 by default)"
        elif found.tls:
            advice = "pass --ca-file, or https://... if the system trusts its authority"
        else:
            advice = "omit --ca-file, --cert-file and their variables"
        text = f"cannot reach {self.address}: {found} answers there, not {wanted}; {advice}"
        raise CliError(text, ExitCode.UNAVAILABLE)

    def _timed_out(self, method: str) -> CliError:
        rest = "" if method == "GET" else "; the change may or may not have been made"
        return CliError(f"{self.address} did not answer in time{rest}", ExitCode.UNKNOWN)

    def _unreachable(self, reason: object) -> CliError:
        why = getattr(reason, "strerror", None) or reason
        text = (
            f"cannot reach {self.address}: {why}; check that the node is running "
            "and that this is its HTTP address (--node HOST:PORT)"
        )
        return CliError(text, ExitCode.UNAVAILABLE)


_EXIT_OF_STATUS: Final = {
    400: ExitCode.BAD_DATA,
    401: ExitCode.NOT_AUTHORISED,
    403: ExitCode.NOT_AUTHORISED,
    404: ExitCode.NOT_FOUND,
    413: ExitCode.BAD_DATA,
    429: ExitCode.UNAVAILABLE,
    503: ExitCode.UNAVAILABLE,
    504: ExitCode.UNKNOWN,
}
