"""The files of a node's certificates and of the administrator's token, which are loaded again when they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from .access import Access, read_admin_token
from .watched_files import WatchedFiles

__all__ = ["Credentials"]

log = structlog.get_logger("lmq.node")


class Credentials:
    """Loads the files again while the node runs.

    Args:
        certificates: the files of certificates, keys and authorities; None for one that is not configured.
        token_file: the file with the administrator's token.
        reload_certificates: loads the certificates for clients and peers; raises if a file is unusable.

    Attributes:
        outdated: the files have changed, but one of them was unusable.
    """

    def __init__(
        self,
        certificates: Iterable[Path | None],
        token_file: Path | None,
        access: Access,
        reload_certificates: Callable[[], None],
    ) -> None:
        self.outdated = False
        self._paths = {path for path in (*certificates, token_file) if path is not None}
        self._token_file = token_file
        self._access = access
        self._reload_certificates = reload_certificates

    def reload(self) -> None:
        """Load the files. If one is unusable, log the error and keep the old content."""
        if not self._paths:
            log.info("nothing to reload", reason="no certificate and no admin_token_file is configured")
            return
        try:
            self._reload_certificates()
            if self._token_file is not None:
                self._access.set_admin_token(read_admin_token(self._token_file))
        except (OSError, ValueError) as exc:
            self.outdated = True
            log.error("cannot reload certificate and admin token, keeping the old ones", reason=str(exc))  # noqa: TRY400  no bug of ours
        else:
            self.outdated = False
            log.info("certificate and admin token reloaded")

    async def watch(self) -> None:
        """Load the files whenever they change, until cancelled."""
        if self._paths:
            await WatchedFiles(self._paths, self.reload).keep()
