"""The tokens and certificates of a client, which may be replaced while it runs.

If a node refuses the token, the client reads the token file again. If the file holds a new token, the client presents it and
repeats the refused request, which had no effect. Otherwise the request fails, so each refusal leads to at most one more attempt.
The client reads the TLS files for each new connection.

If a file cannot be used while the client runs, for example because it is just being written, the last contents stay in force.
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Final

from .tls import SYSTEM, client_context

__all__ = ["Credentials", "FileName", "read_token"]

logger = logging.getLogger("lmqcluster.client")

FileName = str | os.PathLike[str]

TOKEN_BYTES_MAX: Final = 64 * 1024
_TLS_BYTES_MAX: Final = 16 * 1024 * 1024


class Credentials:
    """The credentials of one client, shared by its threads."""

    def __init__(
        self,
        *,
        token: str | None = None,
        token_file: FileName | None = None,
        tls_ca: FileName | None = None,
        tls_cert: FileName | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Read the files.

        Args:
            token: the token to present first.
            token_file: file with the token; if `token` is also given, the file is read only after a node refuses `token`.
            tls_ca: file with the certificate of the nodes' authority, or `SYSTEM`.
            tls_cert: file with the certificate and key to present.
            tls: a context in place of these files.

        Raises:
            ValueError: both files and a context are given, or a file holds no token.
            OSError: a file cannot be read or used.
        """
        if tls is not None and not (tls_ca is None and tls_cert is None):
            raise ValueError("tls takes the place of tls_ca and tls_cert: give one or the other")
        self._token_file = token_file
        if token is None and token_file is not None:
            token = read_token(token_file)
        self.token = None if token is None else token.encode()
        """Token that new connections present; None for none."""
        self._ca = SYSTEM if tls_ca is None else os.fspath(tls_ca)
        self._cert = None if tls_cert is None else os.fspath(tls_cert)
        self._follows_files = not (tls_ca is None and tls_cert is None)
        self._contents: tuple[bytes, ...] = ()
        self._context = tls
        if self._follows_files:
            self._load()

    @property
    def has_tls(self) -> bool:
        """Return whether connections use TLS."""
        return self._context is not None

    def tls(self) -> ssl.SSLContext | None:
        """Return the context for a new connection, from the current contents of the files; None without TLS."""
        if self._follows_files:
            try:
                self._load()
            except OSError as exc:
                logger.warning("new connections use the certificates that were read before: %s", exc)
        return self._context

    def renew(self, refused: bytes | None) -> bool:
        """Look for a token other than the one that a node refused, and return whether there is one to present."""
        if self._token_file is None or refused != self.token:
            return refused != self.token
        try:
            found = read_token(self._token_file).encode()
        except (OSError, ValueError) as exc:
            logger.warning("the token was refused, and there is no other one: %s", exc)
            return False
        if found == refused:
            return False
        logger.info("the token was refused; %s holds another one", self._token_file)
        self.token = found
        return True

    def _load(self) -> None:
        contents = tuple(_read(file, _TLS_BYTES_MAX) for file in (self._ca, self._cert) if file not in (None, SYSTEM))
        if self._context is None or contents != self._contents:
            self._context, self._contents = client_context(self._ca, self._cert), contents


def read_token(file: FileName) -> str:
    """Return the token in a file, without surrounding whitespace.

    Raises:
        ValueError: the file holds no token.
        OSError: the file cannot be read.
    """
    text = _read(file, TOKEN_BYTES_MAX)
    token = text.decode("ascii", "replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError(f"{os.fspath(file)} holds no token")
    return token


def _read(file: FileName | None, bytes_max: int) -> bytes:
    with Path(file or "").open("rb") as opened:
        data = opened.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(f"{os.fspath(file or '')} has more than {bytes_max} bytes")
    return data
