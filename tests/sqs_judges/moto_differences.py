"""The modules of moto's tests of SQS that are run, and their tests that fail here, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["DIFFERENCES", "MODULES"]

MODULES: Final = ("test_sqs", "test_sqs_message_attributes")
"""The others need IAM, Lambda, CloudFormation, several accounts, or moto's own server in the same process."""

_PADDED: Final = "it sets the attribute 'VisibilityTimeout ', whose name ends in a space"
_TEXT: Final = "AWS words the message differently"
_RECEIPT: Final = "an old receipt acts on nothing, so that it cannot reach another consumer's delivery"

DIFFERENCES: Final[Mapping[str, str]] = {
    f"test_sqs::{name}": reason
    for name, reason in {
        "test_batch_change_message_visibility_on_old_message": _RECEIPT,
        "test_change_message_visibility": _PADDED,
        "test_change_message_visibility_on_old_message": _RECEIPT,
        "test_change_message_visibility_on_unknown_receipt_handle": _TEXT,
        "test_create_fifo_queue_with_dlq": "AWS refuses FifoQueue=false for a new queue",
        "test_create_queue_with_different_attributes_fail": "'tru' is no value of FifoQueue",
        "test_create_queues_in_multiple_region": "all regions are one cluster",
        "test_delete_batch_operation": _PADDED,
        "test_delete_message_after_visibility_timeout": _PADDED,
        "test_delete_message_errors": _TEXT,
        "test_delete_message_using_old_receipt_handle": _RECEIPT,
        "test_get_queue_attributes": "a redrive policy is shown without spaces",
        "test_message_becomes_inflight_when_received": _PADDED,
        "test_message_delay_is_more_than_15_minutes": "a standard queue takes no deduplication id",
        "test_message_retention_period": "messages are kept for at least 60 seconds",
        "test_message_with_attributes_invalid_datatype": _TEXT,
        "test_message_with_invalid_attributes": _TEXT,
        "test_permissions": "the version of a policy that AddPermission makes is 2008-10-17",
        "test_purge_queue_twice_raises_purge_in_progress": "a queue may be purged at any time",
        "test_queue_length": _PADDED,
        "test_receive_message_with_explicit_visibility_timeout": _PADDED,
        "test_remove_permission_errors": _TEXT,
        "test_send_messages_to_fifo_without_message_group_id": "in a batch AWS answers InvalidParameterValue",
    }.items()
}
