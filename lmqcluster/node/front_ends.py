"""The front-end processes that a configuration asks for."""

from __future__ import annotations

from ..ports.front_ends.processes import FrontEnds, FrontEndSettings
from .config.config import NodeConfig

__all__ = ["front_ends_of"]


def front_ends_of(config: NodeConfig) -> FrontEnds | None:
    """Return the front-end processes of a node, not started; None if the node accepts clients itself."""
    if not config.front_ends:
        return None
    tls = None
    if config.tls_cert is not None and config.tls_key is not None:
        tls = config.tls_cert, config.tls_key, config.tls_client_ca
    return FrontEnds(config.front_ends, FrontEndSettings(tls, config.log_level, config.log_format))
