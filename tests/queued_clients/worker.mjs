// A producer and a consumer with queued's JavaScript client, as it is published, on nodes that may be killed:
// node worker.mjs FOLDER ADDRESS,ADDRESS,... QUEUE MESSAGES HIDDEN_SECONDS NAME
// Prints what was acknowledged and what was delivered as lines of JSON. A line on standard input ends the producer early, the
// end of standard input ends all.
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const [folder, addresses, queue, messages, hidden, name] = process.argv.slice(2);
const { QueuedClient } = createRequire(folder)("queued-client-js");
const queues = addresses.split(",").map((address) => new QueuedClient({ endpoint: `http://${address}` }).queue(queue));
const PAUSE_MS = 50;
let produced = false;
let finished = false;

const any = () => queues[Math.floor(Math.random() * queues.length)];
const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const unsure = new Map();

// Whatever the error is, the client does not know what became of its request, and sends it again.
async function insist(request) {
  for (;;) {
    try {
      return await request();
    } catch (error) {
      unsure.set(String(error), (unsure.get(String(error)) ?? 0) + 1);
      if (finished) return undefined;
      await sleep(PAUSE_MS);
    }
  }
}

async function produce() {
  for (let number = 0; number < Number(messages) && !produced; number += 1) {
    const contents = `${name}-${number}`;
    const pushed = await insist(() => any().pushMessages([{ contents, visibilityTimeoutSecs: number % 3 === 2 ? 1 : 0 }]));
    if (pushed !== undefined) tell({ acknowledged: contents });
  }
  tell({ produced: true });
}

async function consume() {
  while (!finished) {
    const asked = Date.now() / 1000;
    const polled = await insist(() => any().pollMessages(5, Number(hidden)));
    if (polled === undefined) return;
    const got = Date.now() / 1000;
    if (polled.length === 0) {
      await sleep(PAUSE_MS);
      continue;
    }
    tell({ seen: polled.map((one) => [one.contents, one.id, asked, got]) });
    await insist(() => any().deleteMessages(polled));
  }
}

process.stdin.on("data", () => {
  produced = true;
});
process.stdin.on("end", () => {
  produced = true;
  finished = true;
});
await Promise.all([produce(), consume()]);
for (const [error, times] of unsure) console.error(`${times} times: ${error}`);
process.exit(0);
