"""Options of the port for clients of Amazon SQS."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from ...wire.address import Address
from . import values
from .option import option

__all__ = ["SqsOptions"]

_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_IGNORED: Final = ("policy", "encryption")


@dataclass(frozen=True, kw_only=True)
class SqsOptions:
    """Options of the SQS port."""

    sqs: Address | None = field(
        default=None,
        metadata=option(
            values.address_or_off,
            "Address of the HTTP interface for clients of Amazon SQS, or off; their endpoint URL names it.",
            extremes="As for http. Idle connections are kept for 120 s.",
            metavar="ADDR",
            default="off",
        ),
    )
    sqs_account: str = field(
        default="000000000000",
        metadata=option(
            values.text,
            "Account in the URLs and ARNs of queues, the same on all nodes. Requests may name any account.",
            extremes="Exactly 12 digits.",
            metavar="DIGITS",
            default="000000000000",
        ),
    )
    sqs_region: str = field(
        default="us-east-1",
        metadata=option(
            values.text,
            "Region in the ARNs of queues, if the signature of a request names none.",
            extremes="At most 64 letters, digits and hyphens.",
            metavar="NAME",
            default="us-east-1",
        ),
    )
    sqs_url: str | None = field(
        default=None,
        metadata=option(
            values.url_or_off,
            "Scheme and host of the URLs of queues, such as https://queues.example.org, or off to take those of the "
            "request. Some SDKs send their requests to the URL of the queue.",
            extremes="Clients must be able to reach it; it has no path.",
            metavar="URL",
            default="off",
        ),
    )
    sqs_limits: str = field(
        default="aws",
        metadata=option(
            values.choice("aws", "relaxed"),
            "aws for the limits of Amazon SQS; relaxed for those of the cluster: any times, messages up to "
            "message_bytes_max, 10,000 entries in a batch and 10,000 messages in a receive.",
            extremes="Set the same on all nodes.",
            metavar="LIMITS",
            default="aws",
        ),
    )
    sqs_ignore: tuple[str, ...] = field(
        default=(),
        metadata=option(
            values.tags,
            "Attributes of queues that are stored and shown without any effect, because some tools set them: policy, "
            "encryption. The node refuses the others.",
            extremes="A policy that denies something denies nothing here.",
            metavar="KIND,KIND",
            default="none",
        ),
    )

    def validate_sqs(self, fail: Callable[[str, str], object]) -> None:
        """Call `fail` with the option and the reason if a value is invalid."""
        if _ACCOUNT.fullmatch(self.sqs_account) is None:
            fail("sqs_account", f"must have exactly 12 digits, not {self.sqs_account!r}")
        if _REGION.fullmatch(self.sqs_region) is None:
            fail("sqs_region", f"must be 1 to 64 letters, digits and hyphens, not {self.sqs_region!r}")
        if self.sqs_url is not None and urlsplit(self.sqs_url)[2:] != ("", "", ""):
            fail("sqs_url", f"must have no path, not even a slash: {self.sqs_url!r}")
        for name in self.sqs_ignore:
            if name not in _IGNORED:
                fail("sqs_ignore", f"can name {' and '.join(_IGNORED)}, not {name!r}")
