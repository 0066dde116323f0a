"""Loads the configuration: a flag wins over the environment, which wins over the TOML file and the default."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...replication.peers.tls import PeerTls
from ..access.access import read_admin_token
from ..access.tls import ServerTls
from .config import OPTIONS, NodeConfig, Option
from .config_error import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["load_config"]

FILE_ENVIRONMENT = "LMQ_CONFIG"
_ENVIRONMENT_PREFIX = "LMQ_"
_OTHER_ENVIRONMENT = (FILE_ENVIRONMENT, "LMQ_NODE", "LMQ_TOKEN", "LMQ_TOKEN_FILE", "LMQ_CA_FILE", "LMQ_CERT_FILE")
_SECRETS = ("cluster_secret", "cluster_secret_file")


def load_config(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> NodeConfig:
    """Combine all sources into one configuration.

    Args:
        flags: values of command-line flags by option name; ``None`` stands for an absent flag.
        environ: the environment; by default that of the process.
        file: the TOML file; by default the one that ``LMQ_CONFIG`` names, if any.

    Raises:
        ConfigError: a source cannot be read, or has an unknown key or an invalid value, or values conflict.
    """
    environ = os.environ if environ is None else environ
    if file is None and environ.get(FILE_ENVIRONMENT):
        file = Path(environ[FILE_ENVIRONMENT])
    layers = [_from_flags(flags or {}), _from_environment(environ), _from_file(file)]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        # A secret and a secret file set the same value, so the source of higher precedence overrides both.
        taken = _SECRETS if any(name in values for name in _SECRETS) else ()
        if all(name in layer for name in _SECRETS) and not taken:
            raise ConfigError("cluster_secret and cluster_secret_file are both given: keep one")
        for name, (value, origin) in layer.items():
            if name not in values and name not in taken:
                values[name] = value
                origins[name] = origin
    _read_secret(values, origins)
    _read_admin_token(values, origins)
    config = NodeConfig(**values, origins=origins)
    _check_tls(config)
    return config


Layer = dict[str, tuple[object, str]]


def _parsed(option: Option, value: object, origin: str) -> tuple[object, str]:
    try:
        return option.parse(value), origin
    except ValueError as exc:
        raise ConfigError(f"{option.name}: {exc} ({origin})") from exc


def _from_flags(flags: Mapping[str, object]) -> Layer:
    known = {option.name: option for option in OPTIONS}
    return {
        name: _parsed(known[name], value, f"flag {known[name].flag}")
        for name, value in flags.items()
        if value is not None
    }


def _from_environment(environ: Mapping[str, str]) -> Layer:
    names = [option.environment for option in OPTIONS]
    for key in environ:
        if not key.startswith(_ENVIRONMENT_PREFIX) or key in names or key in _OTHER_ENVIRONMENT:
            continue
        # Other programs and Kubernetes (LMQ_SERVICE_HOST) use the prefix too, so only likely typos are errors.
        close = difflib.get_close_matches(key, names, n=1, cutoff=0.85)
        if close:
            raise ConfigError(f"environment variable {key} is unknown; did you mean {close[0]}?")
    return {
        option.name: _parsed(option, environ[option.environment], f"environment {option.environment}")
        for option in OPTIONS
        if environ.get(option.environment)
    }


def _from_file(file: Path | None) -> Layer:
    if file is None:
        return {}
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"cannot read the configuration file {file}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{file} is not TOML: {exc}") from exc
    known = {option.name: option for option in OPTIONS}
    for key in document:
        if key not in known:
            close = difflib.get_close_matches(key.replace("-", "_").lower(), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise ConfigError(f"{file}: key {key!r} is unknown; {hint}")
    return {name: _parsed(known[name], value, f"file {file}") for name, value in document.items()}


def _read_secret(values: dict[str, Any], origins: dict[str, str]) -> None:
    path = values.get("cluster_secret_file")
    if path is None:
        return
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"cannot read cluster_secret_file {path}: {exc} ({origins['cluster_secret_file']})") from exc
    values["cluster_secret"] = secret
    origins["cluster_secret"] = f"file {path}"


def _read_admin_token(values: dict[str, Any], origins: dict[str, str]) -> None:
    path = values.get("admin_token_file")
    if path is None:
        return
    try:
        values["admin_token"] = read_admin_token(path)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"cannot read admin_token_file {path}: {exc} ({origins['admin_token_file']})") from exc


def _check_tls(config: NodeConfig) -> None:
    files = config.raft_tls_files()
    if files is not None:
        try:
            PeerTls(*files)
        except (OSError, ValueError) as exc:
            raise ConfigError(f"raft_tls_ca: {exc} ({config.origin('raft_tls_ca')})") from exc
    if config.tls_cert is None or config.tls_key is None:
        return
    try:
        ServerTls(config.tls_cert, config.tls_key, config.tls_client_ca)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"tls_cert: {exc} ({config.origin('tls_cert')})") from exc
