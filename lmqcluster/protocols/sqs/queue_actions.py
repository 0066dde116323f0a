"""Actions on queues: creation, attributes, tags, lists."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final

import structlog

from ...core import Role
from ...node.queues.kinds import sqs_defaults
from ...node.queues.sending.naming import shown
from ...node.queues.views.listing import each_queue
from ...wire.limits import NAME_BYTES_MAX
from .errors import QUEUE_EXISTS, SqsError, invalid_value, missing, queue_missing, value_error
from .names import is_creatable
from .queue_attributes import COUNTS, Changes, changes_of, effective, first_difference, requested
from .queue_facts import ALLOW_POLICY, FIFO, KIND, STANDARD, TAG_PREFIX, QueueFacts
from .redrive_policies import AllowPolicy, RedrivePolicy

if TYPE_CHECKING:
    from ...core import Queue
    from .call import Action, Call, Tools
    from .rendering import Output

__all__ = ["QueueActions"]

log = structlog.get_logger("lmq.sqs")

_PAGE_MAX: Final = 1_000
_TAGS_MAX: Final = 50
_TAG_KEY_CHARACTERS: Final = range(1, 129)
_TAG_VALUE_CHARACTERS_MAX: Final = 256
_EXACT_LEASES_MAX: Final = 10_000
_NAME_TEXT: Final = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
_LOGGED_MAX: Final = 1_000


class QueueActions:
    """The actions."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._service = tools.service
        # Queues for which the log says already that some attribute has no effect.
        self._logged: set[tuple[bytes, str]] = set()

    def table(self) -> Mapping[str, Action]:
        """Return the actions by name."""
        return {
            "CreateQueue": self.create,
            "GetQueueUrl": self.url,
            "ListQueues": self.list,
            "DeleteQueue": self.delete,
            "PurgeQueue": self.purge,
            "GetQueueAttributes": self.attributes,
            "SetQueueAttributes": self.set_attributes,
            "TagQueue": self.tag,
            "UntagQueue": self.untag,
            "ListQueueTags": self.tags,
            "ListDeadLetterSourceQueues": self.sources,
        }

    # --- existence ------------------------------------------------------------------------------------------------

    async def create(self, call: Call) -> Output:
        """Create a queue, unless there is one with the same attributes."""
        tools, given, tags = self._tools, call.get("Attributes", {}), call.get("tags", {})
        answer = {"QueueUrl": tools.names.url(call.request, call.queue)}
        name = call.needed("QueueName")
        is_fifo = str(given.get("FifoQueue", "")).lower() == "true"
        if not given and is_creatable(name, is_fifo=True):
            await self._service.sender.look_up()
            if tools.known(call.queue) is not None:
                return answer
        if not is_creatable(name, is_fifo=is_fifo):
            raise invalid_value(_NAME_TEXT)
        changes = changes_of(given, is_fifo=is_fifo, limits=tools.limits, ignored=tools.ignored)
        await self._check_target(call, changes, is_fifo=is_fifo)
        _check_tags(call.queue, tags, {})
        properties = {**sqs_defaults(tools.config, is_fifo=is_fifo), **changes.properties}
        annotations = {KIND: FIFO if is_fifo else STANDARD, **changes.annotations}
        annotations |= {TAG_PREFIX + key: value for key, value in tags.items()}
        pairs = [(key, value) for key, value in properties.items() if value is not None]
        texts = {key: value for key, value in annotations.items() if value is not None}
        owner = call.request.principal.owner
        is_new = await self._service.create(call.queue, pairs, texts, owner, indexed=True)
        if is_new:
            self._log_without_effect(call.queue, changes)
        elif given:
            self._check_same(call, given, changes)
        return answer

    def _check_same(self, call: Call, given: Mapping[str, str], changes: Changes) -> None:
        """Refuse attributes that differ from those of the queue that exists."""
        facts = self._tools.known(call.queue)
        if facts is None:
            return
        name = first_difference(given, changes, facts, self._effective(call, facts))
        if name is not None:
            text = f"A queue already exists with the same name and a different value for attribute {name}"
            raise SqsError(QUEUE_EXISTS, text)

    async def url(self, call: Call) -> Output:
        """Return the URL of a queue."""
        facts = await self._tools.existing(call.queue)
        return {"QueueUrl": self._tools.names.url(call.request, facts.name)}

    async def delete(self, call: Call) -> None:
        """Delete a queue with all that belongs to it."""
        if not await self._service.delete(call.queue):
            raise queue_missing()

    async def purge(self, call: Call) -> None:
        """Remove all messages of a queue."""
        await self._service.operations.purge(call.queue, everything=True)

    # --- attributes -----------------------------------------------------------------------------------------------

    def _effective(self, call: Call, facts: QueueFacts) -> dict[str, str]:
        names, request = self._tools.names, call.request
        return effective(facts, self._tools.message_bytes_max, lambda name: names.arn(request, name))

    async def attributes(self, call: Call) -> Output:
        """Return the attributes of a queue that a client asks for."""
        names = requested(call.get("AttributeNames", ()))
        facts = await self._tools.present(call.queue)
        if names is not None and not names:
            return {}
        shown = self._effective(call, facts) | self._times(facts)
        if names is None or names & set(COUNTS):
            shown |= await self._counts(call, facts.queue)
        return _unless_empty(
            "Attributes", {name: value for name, value in shown.items() if names is None or name in names}
        )

    def _times(self, facts: QueueFacts) -> dict[str, str]:
        unix_us, queue = self._service.unix_us, facts.queue
        changed_us = queue.changed_us or queue.created_us
        return {
            "CreatedTimestamp": str(unix_us(queue.created_us) // 1_000_000),
            "LastModifiedTimestamp": str(unix_us(changed_us) // 1_000_000),
        }

    async def _counts(self, call: Call, queue: Queue) -> dict[str, str]:
        sender = self._service.sender
        now_us = max(sender.state().now_us, self._service.pulls.clock.now_us())
        ready, waiting, leased = queue.store.due_count(now_us), queue.store.waiting(), len(queue.store.leases)
        held = 0 if queue.store.rich is None else len(queue.store.rich.held)
        ended = await self._ended_leases(call, queue, now_us)
        figures = (ready + held + ended, leased - ended, max(0, waiting - ready - held))
        return {name: str(figure) for name, figure in zip(COUNTS, figures, strict=True)}

    async def _ended_leases(self, call: Call, queue: Queue, now_us: int) -> int:
        """Return how many messages are visible again although no poll has met them yet; many take several slices."""
        leases = queue.store.leases
        head_us = leases.head_us()
        if head_us is None or head_us > now_us:
            return 0
        messages = list(leases.messages.values())
        if len(messages) <= _EXACT_LEASES_MAX:
            return sum(one.due_us <= now_us for one in messages)
        turns, client, count = self._service.sender.turns, call.request.client(self._tools.access), 0
        async for block in turns.blocks(messages, client):
            count += sum(one.due_us <= now_us for one in block)
        return count

    async def set_attributes(self, call: Call) -> None:
        """Change attributes of a queue, all or none."""
        given = call.get("Attributes", None)
        if given is None:
            raise missing("Attributes")
        tools = self._tools
        facts = await tools.present(call.queue)
        changes = changes_of(given, is_fifo=facts.is_fifo, limits=tools.limits, ignored=tools.ignored, before=facts)
        await self._check_target(call, changes, is_fifo=facts.is_fifo)
        await self._annotate(call, changes)
        self._log_without_effect(call.queue, changes)

    async def _annotate(self, call: Call, changes: Changes) -> None:
        await self._service.set_properties(
            call.queue, list(changes.properties.items()), annotations=changes.annotations, must_exist=True
        )

    async def _check_target(self, call: Call, changes: Changes, *, is_fifo: bool) -> None:
        """Refuse a redrive policy whose queue for dead letters cannot take them."""
        policy = changes.redrive
        if policy is None:
            return
        call.request.principal.require(Role.WRITE, policy.target)
        await self._service.sender.look_up()
        facts = self._tools.known(policy.target)
        names, request = self._tools.names, call.request
        if facts is None:
            raise self._target_error(call, policy, "Dead letter target does not exist.")
        if facts.is_fifo is not is_fifo:
            raise self._target_error(call, policy, "Dead-letter queue must be same type of queue as the source.")
        if not AllowPolicy.of_kept(facts.text(ALLOW_POLICY)).allows(call.queue):
            reason = f"Dead letter target {names.arn(request, policy.target)} does not allow this source queue."
            raise self._target_error(call, policy, reason)

    def _target_error(self, call: Call, policy: RedrivePolicy, reason: str) -> SqsError:
        names, request = self._tools.names, call.request
        return value_error(policy.shown(lambda name: names.arn(request, name)), "RedrivePolicy", reason)

    def _log_without_effect(self, queue: bytes, changes: Changes) -> None:
        """Log once for each queue that some of its attributes have no effect."""
        for attribute in changes.without_effect:
            if (queue, attribute) not in self._logged:
                if len(self._logged) >= _LOGGED_MAX:
                    self._logged.clear()
                self._logged.add((queue, attribute))
                log.warning("attribute without effect stored", queue=shown(queue), attribute=attribute)

    # --- tags -----------------------------------------------------------------------------------------------------

    async def tag(self, call: Call) -> None:
        """Set tags of a queue."""
        tags = call.get("Tags", None)
        if not tags:
            raise missing("Tags")
        facts = await self._tools.present(call.queue)
        _check_tags(call.queue, tags, facts.tags)
        await self._annotate(call, Changes(annotations={TAG_PREFIX + key: value for key, value in tags.items()}))

    async def untag(self, call: Call) -> None:
        """Remove tags of a queue; unknown ones are ignored."""
        keys = call.get("TagKeys", None)
        if keys is None:
            raise missing("TagKeys")
        if not keys:
            raise invalid_value(f"Tag keys must be between 1 and {_TAG_KEY_CHARACTERS[-1]} characters in length.")
        facts = await self._tools.present(call.queue)
        gone = {TAG_PREFIX + key: None for key in keys if key in facts.tags}
        if gone:
            await self._annotate(call, Changes(annotations=dict(gone)))

    async def tags(self, call: Call) -> Output:
        """Return the tags of a queue."""
        facts = await self._tools.present(call.queue)
        return _unless_empty("Tags", facts.tags)

    # --- lists ----------------------------------------------------------------------------------------------------

    async def list(self, call: Call) -> Output:
        """Return a page of the queues that clients of SQS may create."""
        prefix = (call.text("QueueNamePrefix") or "").encode("utf-8", "surrogatepass")
        found = self._listed(call, prefix, lambda queue: is_creatable(queue.name.decode("utf-8", "replace")))
        return await self._page(call, "QueueUrls", found)

    async def sources(self, call: Call) -> Output:
        """Return a page of the queues whose dead letters come here."""
        await self._tools.present(call.queue)
        found = self._listed(call, b"", lambda queue: QueueFacts(queue).dead_letters == call.queue)
        return await self._page(call, "queueUrls", found)

    async def _listed(self, call: Call, prefix: bytes, is_wanted: Callable[[Queue], bool]) -> AsyncIterator[bytes]:
        """Yield the names of wanted queues that a client may see, in the order of names, from a token on."""
        sender, covers = self._service.sender, call.request.principal.covers
        after = _after(call)
        await sender.look_up()
        start = max(prefix, after + b"\0") if after else prefix
        client = call.request.client(self._tools.access)
        async for queue in each_queue(sender.state, sender.turns, client, start=start):
            if not queue.name.startswith(prefix):
                return
            if is_wanted(queue) and covers(queue.name):
                yield queue.name

    async def _page(self, call: Call, member: str, found: AsyncIterator[bytes]) -> Output:
        limit = call.get("MaxResults", None)
        if limit is not None and not 1 <= limit <= _PAGE_MAX:
            raise value_error(limit, "MaxResults", f"MaxResults must be between 1 and {_PAGE_MAX}")
        names, request = self._tools.names, call.request
        page: list[bytes] = []
        goes_on = False
        async for name in found:
            if len(page) == (limit or _PAGE_MAX):
                goes_on = limit is not None
                break
            page.append(name)
        output = _unless_empty(member, [names.url(request, name) for name in page])
        if goes_on:
            output["NextToken"] = base64.urlsafe_b64encode(page[-1]).decode("ascii")
        return output


def _after(call: Call) -> bytes:
    """Return the name after which a page begins, empty for the first page."""
    token = call.text("NextToken")
    if not token:
        return b""
    try:
        name = base64.b64decode(token, b"-_", validate=True)
    except (binascii.Error, ValueError):
        name = b""
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise invalid_value("Invalid or expired next token.")
    return name


def _check_tags(queue: bytes, tags: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Refuse tags that are too long or too many."""
    for key, value in tags.items():
        if len(key) not in _TAG_KEY_CHARACTERS or len(value) > _TAG_VALUE_CHARACTERS_MAX:
            raise invalid_value(
                f"A tag has a key of 1 to {_TAG_KEY_CHARACTERS[-1]} characters and a value of at most"
                f" {_TAG_VALUE_CHARACTERS_MAX}."
            )
    if len({**before, **tags}) > _TAGS_MAX:
        raise invalid_value(f"Too many tags added for queue {queue.decode('utf-8', 'replace')}.")


def _unless_empty(member: str, value: object) -> Output:
    return {member: value} if value else {}
