// What queued's JavaScript client, as it is published, does with a cluster: node scenario.mjs FOLDER ADDRESS,ADDRESS,ADDRESS QUEUE
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { QueuedApiError, QueuedClient } = createRequire(process.argv[2])("queued-client-js");
const clients = process.argv[3].split(",").map((address) => new QueuedClient({ endpoint: `http://${address}`, maxRetries: 3 }));
const name = process.argv[4];

await clients[0].createQueue(name);
await assert.rejects(clients[1].createQueue(name), (error) => error instanceof QueuedApiError && error.status === 409);
assert((await clients[1].listQueues()).queues.some((queue) => queue.name === name));
const queues = clients.map((client) => client.queue(name));
const pushed = await queues[0].pushMessages(
  ["one", "two", "three"].map((contents) => ({ contents, visibilityTimeoutSecs: 0 })),
);
assert.equal(pushed.length, 3);
const polled = await queues[1].pollMessages(2, 60);
assert.deepEqual(polled.map((message) => message.contents), ["one", "two"]);
assert.deepEqual(polled.map((message) => message.id), pushed.slice(0, 2));
assert.notEqual(await queues[2].updateMessage(polled[0], 0), polled[0].pollTag);
await queues[0].deleteMessages(polled);
const rest = await queues[1].pollMessages(10, 60);
assert.deepEqual(rest.map((message) => message.contents).sort(), ["one", "three"]);
await queues[2].deleteMessages(rest);
assert.deepEqual(await queues[0].pollMessages(10, 60), []);
const metrics = await queues[0].metrics();
assert.equal(metrics.messageCounter, 0);
assert.equal(metrics.missingDeleteCounter, 1);
await queues[0].pushMessagesRaw([{ contents: new Uint8Array([255, 0]), visibilityTimeoutSecs: 60 }]);
const [hidden] = await queues[1].pollMessagesRaw(1, 60, true);
assert.deepEqual([...hidden.contents], [255, 0]);
// It throws at members that it does not know, which is why answers in MessagePack have them only on request.
const details = new QueuedClient({ endpoint: clients[0].opts.endpoint, maxRetries: 3 });
const plainRequest = details.rawRequest.bind(details);
details.rawRequest = (method, path, body) => plainRequest(method, path, { ...body, details: true });
await assert.rejects(details.queue(name).pollMessagesRaw(1, 60, true), /extraneous fields: created, poll_count/);
await clients[2].deleteQueue(name);
