"""Batches: checks of the whole, and answers of which each entry succeeds or fails alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...wire.repeated_sends import ENTRY_ID
from .call import Call
from .errors import BATCH_IDS_REPEATED, EMPTY_BATCH, INVALID_BATCH_ID, TOO_MANY_ENTRIES, SqsError, missing
from .rendering import Output

__all__ = ["Entry", "batch_output", "entries_of", "outcome_of"]

Entry = Mapping[str, Any]


def entries_of(call: Call, entries_max: int) -> Sequence[Entry]:
    """Return the entries of a batch.

    Raises:
        SqsError: there are none or too many, or an id is malformed or repeated.
    """
    entries: Sequence[Entry] = call.get("Entries", ())
    if not entries:
        raise SqsError(EMPTY_BATCH, f"There should be at least one {call.action}RequestEntry in the request.")
    if len(entries) > entries_max:
        text = f"Maximum number of entries per request are {entries_max}. You have sent {len(entries)}."
        raise SqsError(TOO_MANY_ENTRIES, text)
    known: set[str] = set()
    for entry in entries:
        if "Id" not in entry:
            raise missing(f"{call.action}RequestEntry.Id")
        name = entry["Id"]
        if ENTRY_ID.fullmatch(name) is None:
            text = "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
            raise SqsError(INVALID_BATCH_ID, f"{text} It can be at most 80 letters long.")
        if name in known:
            raise SqsError(BATCH_IDS_REPEATED, f"Id {name} repeated.")
        known.add(name)
    return entries


def outcome_of(entry: Entry, error: SqsError) -> Output:
    """Return the row of an entry that failed."""
    kind = error.kind
    return {
        "Id": entry["Id"],
        "SenderFault": kind.fault == "Sender",
        "Code": kind.short_code,
        "Message": error.message,
    }


def batch_output(successful: Sequence[Output], failed: Sequence[Output]) -> Output:
    """Return the answer to a batch; empty lists are left out."""
    output: Output = {}
    if successful:
        output["Successful"] = list(successful)
    if failed:
        output["Failed"] = list(failed)
    return output
