"""The error of an unusable configuration, for programs that read none and only report it."""

from __future__ import annotations

from typing import Final

__all__ = ["ConfigError"]


class ConfigError(Exception):
    """An unusable configuration. The text is one line that names the option and its source; exit status 78."""

    exit_code: Final = 78
