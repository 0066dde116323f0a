// The AWS SDK for JavaScript v3 and sqs-consumer, as a program uses them.
// Arguments: the folder with node_modules, the URL of a port, a prefix for names of queues. With a fourth one, that number of
// messages is sent and received; a line says when a quarter has been sent.

import assert from "node:assert";
import { createRequire } from "node:module";

const [folder, endpoint, prefix, count] = process.argv.slice(2);
const require = createRequire(folder);
const sdk = require("@aws-sdk/client-sqs");
const { Consumer } = require("sqs-consumer");

const sqs = new sdk.SQSClient({ endpoint });
const send = (action, input) => sqs.send(new sdk[`${action}Command`](input));

async function received(QueueUrl, count) {
  const found = [];
  while (found.length < count) {
    const answer = await send("ReceiveMessage", {
      QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["All"],
    });
    found.push(...(answer.Messages ?? []));
  }
  assert.equal(found.length, count);
  return found;
}

async function standard() {
  const { QueueUrl } = await send("CreateQueue", { QueueName: prefix, Attributes: { VisibilityTimeout: "120" } });
  const raw = Uint8Array.from({ length: 256 }, (_, place) => place);
  const attributes = {
    text: { DataType: "String", StringValue: "café <&>" },
    raw: { DataType: "Binary", BinaryValue: raw },
  };
  const sent = await send("SendMessage", { QueueUrl, MessageBody: "first 😀", MessageAttributes: attributes });
  const Entries = [0, 1, 2].map((number) => ({ Id: `n${number}`, MessageBody: `body ${number}` }));
  const batch = await send("SendMessageBatch", { QueueUrl, Entries: [...Entries, { Id: "bad", MessageBody: "\x01" }] });
  assert.deepEqual(batch.Successful.map((one) => one.Id), ["n0", "n1", "n2"]);
  assert.deepEqual(batch.Failed.map((one) => one.Id), ["bad"]);
  const messages = await received(QueueUrl, 4);
  const [first] = messages;
  assert.deepEqual([first.Body, first.MessageId], ["first 😀", sent.MessageId]);
  assert.deepEqual([...first.MessageAttributes.raw.BinaryValue], [...raw]);
  await send("ChangeMessageVisibility", { QueueUrl, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 0 });
  const [again] = await received(QueueUrl, 1);
  assert.equal(again.Attributes.ApproximateReceiveCount, "2");
  const handles = [again, ...messages.slice(1)].map((one, place) => ({ Id: `${place}`, ReceiptHandle: one.ReceiptHandle }));
  assert.equal((await send("DeleteMessageBatch", { QueueUrl, Entries: handles })).Successful.length, 4);
  await send("DeleteQueue", { QueueUrl });
  await assert.rejects(send("GetQueueUrl", { QueueName: prefix }), (error) => {
    assert.ok(error instanceof sdk.QueueDoesNotExist, error);
    return true;
  });
}

async function fifo() {
  const Attributes = { FifoQueue: "true", ContentBasedDeduplication: "true" };
  const { QueueUrl } = await send("CreateQueue", { QueueName: `${prefix}.fifo`, Attributes });
  for (const MessageBody of ["1", "2", "1"]) await send("SendMessage", { QueueUrl, MessageBody, MessageGroupId: "a" });
  const messages = await received(QueueUrl, 2);
  assert.deepEqual(messages.map((one) => one.Body), ["1", "2"]);
  for (const { ReceiptHandle } of messages) await send("DeleteMessage", { QueueUrl, ReceiptHandle });
  await send("DeleteQueue", { QueueUrl });
}

// A consumer that fails once for each message: it must see each twice, and none is left.
async function consumer() {
  const { QueueUrl: queueUrl } = await send("CreateQueue", { QueueName: `${prefix}-consumed` });
  const seen = new Map();
  await new Promise((resolve, reject) => {
    const app = Consumer.create({
      queueUrl, sqs, batchSize: 10, waitTimeSeconds: 20, visibilityTimeout: 60, terminateVisibilityTimeout: true,
      suppressFifoWarning: true,
      handleMessage: async (message) => {
        const times = (seen.get(message.Body) ?? 0) + 1;
        seen.set(message.Body, times);
        if (times === 1) throw new Error("not yet");
        if (seen.size === 20 && [...seen.values()].every((one) => one === 2)) app.stop();
        return message;
      },
    });
    app.on("error", reject);
    app.on("processing_error", () => {});
    app.on("stopped", resolve);
    app.start();
    const Entries = (from) => Array.from({ length: 10 }, (_, place) => ({ Id: `${place}`, MessageBody: `task ${from + place}` }));
    for (const from of [0, 10]) send("SendMessageBatch", { QueueUrl: queueUrl, Entries: Entries(from) }).catch(reject);
  });
  for (;;) {
    const { Attributes: left } = await send("GetQueueAttributes", { QueueUrl: queueUrl, AttributeNames: ["All"] });
    if (left.ApproximateNumberOfMessages === "0" && left.ApproximateNumberOfMessagesNotVisible === "0") break;
  }
  await send("DeleteQueue", { QueueUrl: queueUrl });
}

// Each message must be stored once, whatever happens to the nodes.
async function flow(count) {
  const { QueueUrl } = await send("CreateQueue", { QueueName: prefix });
  for (let number = 0; number < count; number++) {
    await send("SendMessage", { QueueUrl, MessageBody: `${number}` });
    if (number === count / 4) console.log("a quarter has been sent");
  }
  const bodies = new Map();
  while (bodies.size < count) {
    const { Messages = [] } = await send("ReceiveMessage", { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 20 });
    for (const { MessageId, Body, ReceiptHandle } of Messages) {
      bodies.set(MessageId, Number(Body));
      await send("DeleteMessage", { QueueUrl, ReceiptHandle });
    }
  }
  assert.deepEqual([...bodies.values()].sort((one, other) => one - other), [...Array(count).keys()]);
  const { Attributes: left } = await send("GetQueueAttributes", { QueueUrl, AttributeNames: ["All"] });
  assert.deepEqual([left.ApproximateNumberOfMessages, left.ApproximateNumberOfMessagesNotVisible], ["0", "0"]);
}

if (count === undefined) {
  await standard();
  await fifo();
  await consumer();
} else {
  await flow(Number(count));
}
