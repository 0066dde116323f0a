"""The cluster of a pipeline: its options, and a connection test before Spark starts."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from lmqcluster.client.transport.addresses import parse_addresses
from lmqcluster.wire.errors import LmqError

from ..shared.errors import CliError, ExitCode

if TYPE_CHECKING:
    from lmqcluster.spark.pipelines.base.access import Access

__all__ = ["ClusterOptions", "cluster_options", "target_cluster_options"]

SERVERS_DEFAULT: Final = "127.0.0.1:18800"
_REACH_S: Final = 5.0
_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True)
class ClusterOptions:
    """The cluster that the options describe.

    Attributes:
        option: the option that names its servers.
        token_file: file with the token; overrides `token`.
    """

    option: str
    servers: str
    token: str | None = field(repr=False)
    token_file: str | None
    ca_file: str | None
    cert_file: str | None
    timeout_s: float

    def reach(self) -> None:
        """Check that a node answers, before Spark starts, which takes seconds.

        Raises:
            click.UsageError: the addresses are malformed.
            CliError: no node answered, or a file cannot be used.
        """
        from lmqcluster import Client  # noqa: PLC0415

        try:
            parse_addresses(self.servers)
        except ValueError as exc:
            raise click.UsageError(f"{self.option}: {exc}") from exc
        try:
            client = Client(
                self.servers,
                timeout_s=_REACH_S,
                token=self._given_token,
                token_file=self.token_file,
                tls_ca=self.ca_file,
                tls_cert=self.cert_file,
            )
        except (OSError, ValueError) as exc:
            files = " or ".join(file for file in (self.token_file, self.ca_file, self.cert_file) if file is not None)
            raise CliError(f"cannot use {files}: {exc}", ExitCode.CONFIGURATION) from exc
        try:
            with client:
                pass
        except LmqError as exc:
            raise CliError(f"{self.option} {self.servers}: {exc.message}", ExitCode(exc.spec.exit_code)) from exc

    def access(self) -> Access:
        """Return the access data for a pipeline."""
        from lmqcluster.spark.pipelines.base.access import Access  # noqa: PLC0415

        return Access(
            servers=self.servers,
            token=self._given_token,
            token_file=self.token_file,
            tls_ca=self.ca_file,
            tls_cert=self.cert_file,
            timeout_s=self.timeout_s,
            environment=False,
        )

    @property
    def _given_token(self) -> str | None:
        return self.token if self.token_file is None else None


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe the cluster; the function gets `ClusterOptions` as ``cluster``."""

    @click.option(
        "--servers",
        metavar="HOST:PORT,...",
        default=SERVERS_DEFAULT,
        show_default=True,
        envvar="LMQ_SERVERS",
        help="MessagePack-RPC addresses of the cluster's nodes. [LMQ_SERVERS]",
    )
    @click.option(
        "--token-file",
        metavar="FILE",
        envvar="LMQ_TOKEN_FILE",
        help="File that contains the token. [LMQ_TOKEN_FILE, or the token itself in LMQ_TOKEN]",
    )
    @click.option(
        "--ca-file",
        metavar="FILE",
        envvar="LMQ_CA_FILE",
        help="Use TLS; verify nodes by this certificate authority, or by those of the machine with the word system."
        " [LMQ_CA_FILE]",
    )
    @click.option(
        "--cert-file",
        metavar="FILE",
        envvar="LMQ_CERT_FILE",
        help="Client certificate and key, if nodes require one. [LMQ_CERT_FILE]",
    )
    @click.option(
        "--timeout",
        default=_TIMEOUT_S,
        show_default=True,
        type=click.FloatRange(0, 86_400, min_open=True),
        help="Seconds to wait for a cluster without a quorum before failing.",
    )
    @functools.wraps(function)
    def wrapper(
        servers: str,
        token_file: str | None,
        ca_file: str | None,
        cert_file: str | None,
        timeout: float,
        **arguments: Any,
    ) -> Any:
        token = os.environ.get("LMQ_TOKEN") or None
        if click.get_current_context().get_parameter_source("token_file") is ParameterSource.ENVIRONMENT and token:
            token_file = None
        cluster = ClusterOptions("--servers", servers, token, token_file, ca_file, cert_file, timeout)
        return function(cluster=cluster, **arguments)

    return wrapper


def target_cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the other cluster to write to, below `cluster_options`; the function gets it as ``target``."""

    @click.option(
        "--to", metavar="HOST:PORT,...", required=True, help="MessagePack-RPC addresses of the other cluster."
    )
    @click.option("--to-token-file", metavar="FILE", help="File that contains the token for the other cluster.")
    @click.option("--to-ca-file", metavar="FILE", help="As --ca-file, for the other cluster.")
    @click.option("--to-cert-file", metavar="FILE", help="As --cert-file, for the other cluster.")
    @click.option(
        "--to-same-credentials",
        is_flag=True,
        help="Use the same token and certificate for the other cluster.",
    )
    @functools.wraps(function)
    def wrapper(
        *arguments: Any,
        cluster: ClusterOptions,
        to: str,
        to_token_file: str | None,
        to_ca_file: str | None,
        to_cert_file: str | None,
        to_same_credentials: bool,
        **named: Any,
    ) -> Any:
        target = ClusterOptions("--to", to, None, to_token_file, to_ca_file, to_cert_file, cluster.timeout_s)
        if to_same_credentials:
            if to_token_file or to_ca_file or to_cert_file:
                raise click.UsageError(
                    "--to-same-credentials excludes --to-token-file, --to-ca-file and --to-cert-file"
                )
            target = ClusterOptions(
                "--to", to, cluster.token, cluster.token_file, cluster.ca_file, cluster.cert_file, cluster.timeout_s
            )
        return function(*arguments, cluster=cluster, target=target, **named)

    return wrapper
