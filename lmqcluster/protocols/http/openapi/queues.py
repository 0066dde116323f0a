"""Routes of queues and subscriptions in the OpenAPI document."""

from __future__ import annotations

from ....node.queues.views.listing import SORT_KEYS, STATES
from ....wire.limits import PULL_COUNT_MAX, PUSH_COUNT_MAX
from ..v1.bodies.rendering import QUEUE_FIELDS
from .options import ATTRIBUTE_FILTER
from .parts import KEY, NAME, TRACE, Json, operation, query

__all__ = ["job_paths", "queue_paths", "subscription_paths"]


def _list_parameters() -> list[Json]:
    sort_text = "What to sort by; equal queues stand in the order of their names."
    fields_text = f"Comma-separated fields to show beside the name: {', '.join(QUEUE_FIELDS)}."
    after_text = "Go on behind this name: the answer's `next`. Only where the list is sorted by name."
    return [
        query("limit", "Most queues in one answer.", {"type": "integer", "minimum": 1, "maximum": 10_000}),
        query("after", after_text, {"type": "string"}),
        query("offset", "How many queues to leave out.", {"type": "integer", "minimum": 0, "default": 0}),
        query("name", "Only queues with this in their names, in upper or lower case.", {"type": "string"}),
        query("pattern", "Only queues in whose names this regular expression is found.", {"type": "string"}),
        query("state", "Only queues in this state.", {"type": "string", "enum": list(STATES)}),
        query("sort", sort_text, {"type": "string", "enum": list(SORT_KEYS), "default": "name"}),
        query(
            "order",
            "By default `asc` for names, `desc` for anything else.",
            {"type": "string", "enum": ["asc", "desc"]},
        ),
        query("fields", fields_text, {"type": "string"}),
        query("consumers", "Add the number of consumers of each queue at all nodes.", {"type": "string"}),
    ]


def _peek_parameters() -> list[Json]:
    bytes_text = (
        "Most bytes of each body to show. An answer ends with the message that brings it above 8 MiB, or earlier."
    )
    attribute_text = f"{ATTRIBUTE_FILTER['description']} An answer ends after 10,000 messages that were compared."
    return [
        query("limit", "Most messages.", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20}),
        query("after", "Go on behind this sequence: the answer's `next`.", {"type": "integer", "minimum": 0}),
        query("label", "Only messages with this label.", {"type": "string", "minLength": 1}),
        query("group", "Only messages of this group.", {"type": "string", "minLength": 1}),
        query("attribute", attribute_text, {"type": "string", "pattern": ATTRIBUTE_FILTER["pattern"]}),
        query("bytes", bytes_text, {"type": "integer", "minimum": 0, "maximum": 1024 * 1024, "default": 64 * 1024}),
    ]


def queue_paths() -> Json:
    """Return the paths of queues and their messages."""
    queue = "/v1/queues/{name}"
    push_text = f"Push up to {PUSH_COUNT_MAX} messages: all are stored, or none"
    create_text = "Create a queue of a kind; a queue that exists stays as it is"
    peek_text = "Look at messages in order of their sequence, leased ones among them, without taking any"
    pull_text = f"Pull up to {PULL_COUNT_MAX} messages as soon as there is one, waiting up to `timeout` seconds for it"
    return {
        "/v1/queues": {
            "get": operation("listQueues", "Queues that match, sorted", "Queues", parameters=_list_parameters())
        },
        queue: {
            "parameters": [NAME],
            "get": operation("getQueue", "Counts and properties of a queue", "QueueDetail", not_found=True),
            "put": operation("createQueue", create_text, "Created", body="Creation", body_required=False),
            "delete": operation("deleteQueue", "Delete a queue and its messages", None, not_found=True),
        },
        f"{queue}/properties": {
            "parameters": [NAME],
            "get": operation("getProperties", "Effective properties; the queue need not exist", "Properties"),
            "patch": operation("setProperties", "Set some properties, keep the others", None, body="PropertyChanges"),
            "delete": operation("clearProperties", "Remove the queue's own properties", None),
        },
        f"{queue}/messages": {
            "parameters": [NAME],
            "get": operation("peek", peek_text, "PeekedMessages", parameters=_peek_parameters(), not_found=True),
            "post": operation("push", push_text, "PushResults", body="Push", parameters=[KEY, *TRACE]),
        },
        f"{queue}/pull": {
            "parameters": [NAME],
            "post": operation("pull", pull_text, "Messages", body="Pull", body_required=False),
        },
        **{
            f"{queue}/{verb}": {
                "parameters": [NAME],
                "post": operation(verb, summary, "Results", body=body, not_found=True),
            }
            for verb, summary, body in (
                ("ack", "Acknowledge messages: they are done", "Ids"),
                ("nack", "Give messages back; each loses a retry", "Nack"),
                ("extend", "Restart the leases of messages", "Extend"),
            )
        },
        **_operation_paths(queue),
        **_move_task_paths(queue),
        **_read_paths(queue),
    }


def _move_task_paths(queue: str) -> Json:
    start = (
        "Start to move the messages of the queue, such as dead letters, without further requests; one task at a time"
    )
    number = {"name": "number", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}
    return {
        f"{queue}/move-tasks": {
            "parameters": [NAME],
            "get": operation("listMoveTasks", "The latest tasks, the newest first", "MoveTasks", not_found=True),
            "post": operation(
                "startMoveTask", start, "MoveTaskStarted", body="MoveTaskStart", not_found=True, body_required=False
            ),
        },
        f"{queue}/move-tasks/{{number}}": {
            "parameters": [NAME, {**number, "description": "Number of the task."}],
            "delete": operation("cancelMoveTask", "Cancel a running task", "MoveTaskCancelled", not_found=True),
        },
    }


def _read_paths(queue: str) -> Json:
    return {
        f"{queue}/bindings": {
            "parameters": [NAME],
            "get": operation("listBindings", "The queues that get copies of what is pushed to this one", "Bindings"),
        },
        f"{queue}/labels": {
            "parameters": [NAME],
            "get": operation(
                "countLabelled",
                "How many messages with a label wait",
                "LabelCount",
                parameters=[query("label", "The label.", {"type": "string", "minLength": 1})],
                not_found=True,
            ),
        },
        "/v1/transactions": {
            "post": operation(
                "transact",
                "Push, acknowledge, give back and extend in one step: all of it is done, or nothing",
                "TransactionResults",
                body="Transaction",
                parameters=[KEY, *TRACE],
            )
        },
    }


def _operation_paths(queue: str) -> Json:
    purge = "Remove messages that are not leased; may be repeated safely without `max`"
    move = (
        "Put messages that can be pulled now at the end of another queue, as fresh messages; not to be repeated blindly"
    )
    redrive = "Send messages that the cluster has put here back to where they came from, or elsewhere, as fresh ones"
    suspend = "Let pulls find nothing until the queue is resumed; pushes, acks and the end of leases go on"
    operations = {
        "purge": ("purgeQueue", purge, "Purged", "Purge"),
        "move": ("moveMessages", move, "Moved", "Move"),
        "withdraw": (
            "withdrawMessages",
            "Remove messages with a label, and an attribute if one is given, that are not under lease",
            "Withdrawn",
            "Withdraw",
        ),
        "redrive": ("redriveMessages", redrive, "Redriven", "Redrive"),
        "bind": ("bindQueue", "Have copies of what is pushed to the queue stored in another one", "Bound", "Binding"),
        "unbind": ("unbindQueue", "End a binding", "Unbound", "Binding"),
        "suspend": ("suspendQueue", suspend, "Suspended", "Nothing"),
        "resume": ("resumeQueue", "Let the queue hand out messages again", "Suspended", "Nothing"),
    }
    return {
        f"{queue}/{verb}": {
            "parameters": [NAME],
            "post": operation(
                name, text, answer, body=body, not_found=True, body_required=body not in {"Nothing", "Purge"}
            ),
        }
        for verb, (name, text, answer, body) in operations.items()
    }


def subscription_paths() -> Json:
    """Return the paths of subscriptions, which hold batch leases."""
    one = "/v1/subscriptions/{name}"
    name = {**NAME, "description": "Name of a subscription."}
    delete = "Put the messages of all its batches back, and forget it, also if another consumer has claimed it"
    abandon = "Put the messages of all its batches back in their places, uncharged"
    return {
        "/v1/subscriptions": {"get": operation("listSubscriptions", "Who holds batch leases", "Subscriptions")},
        one: {
            "parameters": [name],
            "get": operation("getSubscription", "The batches that are not settled", "Subscription", not_found=True),
            "delete": operation("deleteSubscription", delete, None, not_found=True),
        },
        f"{one}/abandon": {
            "parameters": [name],
            "post": operation("abandonBatches", abandon, None, not_found=True),
        },
    }


def job_paths() -> Json:
    """Return the paths of writers' jobs."""
    owner = "The principal that the job belongs to, for who may do everything; default one's own."
    return {
        "/v1/jobs": {"get": operation("listJobs", "What writers that store exactly once have left", "Jobs")},
        "/v1/jobs/{name}": {
            "parameters": [{**NAME, "description": "Name of a job."}],
            "delete": operation(
                "deleteJob",
                "Forget a job: a repetition of its writes stores their rows again",
                None,
                not_found=True,
                parameters=[query("owner", owner, {"type": "string"})],
            ),
        },
    }
