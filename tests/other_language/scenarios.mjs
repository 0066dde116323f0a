// What the client is put through: node scenarios.mjs SCENARIO HOST:PORT,HOST:PORT,HOST:PORT QUEUE
// Ends with 0, or says what was wrong. `test_client.py` runs it, and looks at the cluster itself before and afterwards.

import assert from "node:assert/strict";
import net from "node:net";

import { Client } from "./client.mjs";

const [scenario, addresses, queue] = process.argv.slice(2);
const clients = addresses.split(",").map((address) => new Client(...address.split(":")));
const [first, second, third] = clients;
const text = (buffer) => buffer.toString();
const failsWith = (code, answer) => assert.rejects(answer, { code });

const scenarios = {
  async push_pull_done() {
    const content = { text: "zwölf Boxkämpfer", long: "x".repeat(300), numbers: [0, -1, 127, 128, -129, 70000, 2 ** 40, -(2 ** 40), 1.5], nothing: null, yes: true };
    assert.equal(text(await first.call("push", queue, content)), "ok");
    const message = await second.call("pull", queue);
    assert.deepEqual([...message.keys()], ["queue", "id", "type", "retry", "content"]);
    assert.equal(text(message.get("queue")), queue);
    assert.equal(text(message.get("type")), "normal");
    assert.equal(message.get("retry"), 2);
    const came = message.get("content");
    assert.equal(text(came.get("text")), content.text);
    assert.equal(text(came.get("long")), content.long);
    assert.deepEqual(came.get("numbers"), content.numbers);
    assert.equal(came.get("nothing"), null);
    assert.equal(came.get("yes"), true);
    assert.equal(text(await third.call("done", queue, message.get("id"))), "ok");
    await failsWith("not_found", first.call("done", queue, message.get("id")));
    assert.equal(text(await first.call("pull", queue, 0)), "empty");
  },

  async release() {
    await first.call("push", queue, "given back");
    await first.call("push", queue, "next");
    const message = await second.call("pull", queue, 0);
    assert.equal(text(await third.call("release", queue, message.get("id"))), "ok");
    const [next, again] = await first.call("pull_many", queue, 10);
    assert.equal(text(next.get("content")), "next");
    assert.equal(text(again.get("content")), "given back");
    assert.equal(again.get("retry"), message.get("retry") - 1);
    assert.notDeepEqual(again.get("id"), message.get("id"));
    await failsWith("not_found", first.call("release", queue, message.get("id")));
    assert.deepEqual(await first.call("done_many", queue, [next.get("id"), message.get("id"), again.get("id")]), [true, false, true]);
  },

  async wait() {
    assert.equal(text(await first.call("pull", queue, 0)), "empty");
    assert.equal(text(await first.call("pull", queue, 0.05)), "empty");
    const cancelled = first.call("pull", queue);
    const waiting = first.call("pull", queue, 600);
    assert.equal(text(await first.call("ping")), "pong", "a pull that waits delays nothing else");
    await first.call("cancel", cancelled.msgid);
    assert.equal(text(await cancelled), "empty");
    await second.call("push", queue, "wakes it");
    const message = await waiting;
    assert.equal(text(message.get("content")), "wakes it");
    await first.call("done", queue, message.get("id"));
  },

  async errors() {
    await failsWith("bad_name", first.call("push", "n".repeat(256), 1));
    await failsWith("unknown_method", first.call("no_such_method"));
    await failsWith("unknown_method", first.call("push", queue));
    await failsWith("bad_arguments", first.call("pull", queue, "soon"));
    await failsWith("bad_property", first.call("update_props", queue, { retry: -1 }));
    await failsWith("bad_pattern", first.call("push_all", "(", 1));
    await failsWith("queue_not_found", first.call("done", queue, "0".repeat(32)));
    await first.call("push", queue, 1);
    await failsWith("not_found", first.call("done", queue, "0".repeat(32)));
    assert.deepEqual(await first.call("push_many", queue, ["a", "b"], { keys: ["k1", "k2"] }), [Buffer.from("ok"), Buffer.from("ok")]);
    await failsWith("key_reused", second.call("push", queue, "another body", { key: "k1" }));
    first.notify("push", queue, "never answered");
    const messages = await first.call("pull_many", queue, 10);
    assert.deepEqual(messages.map((message) => String(message.get("content"))), ["1", "a", "b", "never answered"]);
    await first.call("done_many", queue, messages.map((message) => message.get("id")));

    const hangsUp = net.createServer((socket) => socket.once("data", () => socket.destroy())).listen(0, "127.0.0.1");
    await new Promise((resolve) => hangsUp.once("listening", resolve));
    await failsWith("unknown_outcome", new Client("127.0.0.1", hangsUp.address().port).call("push", queue, "lost"));
    hangsUp.close();
  },

  async pipelining() {
    const count = 5000;
    const numbers = Array.from({ length: count }, (_, number) => number);
    const answers = await Promise.all(numbers.map((number) => first.call("push", queue, number)));
    assert.ok(answers.every((answer) => text(answer) === "ok"));
    const messages = await Promise.all(numbers.map(() => second.call("pull", queue, 60)));
    assert.deepEqual(messages.map((message) => message.get("content")), numbers, "in the order in which they were pushed");
    const settled = await Promise.all(messages.map((message) => third.call("done", queue, message.get("id"))));
    assert.equal(settled.length, count);
    const [, , pulled] = await Promise.all([first.call("push", queue, "a"), first.call("push", queue, "b"), first.call("pull_many", queue, 10)]);
    assert.deepEqual(pulled.map((message) => text(message.get("content"))), ["a", "b"], "requests take effect in the order sent");
    await first.call("done_many", queue, pulled.map((message) => message.get("id")));
  },
};

await scenarios[scenario]();
for (const client of clients) client.close();
