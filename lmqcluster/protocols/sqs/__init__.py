"""The protocol of clients of Amazon SQS: one action a request, in JSON or in the older form with queries and XML."""

from .port import SqsPort

__all__ = ["SqsPort"]
