// The dialog that creates a queue: plain, FIFO or fair.

import { ask, commandLine, field } from "./actions.js";
import { change } from "./api.js";
import { h } from "./dom.js";
import { quoted, segmentOf } from "./names.js";
import { optionWords } from "./options.js";

// Properties beside the lease, as the SQS port sets them for its queues.
const KINDS = {
  plain: { text: "Plain: messages in the order of their pushes", properties: {} },
  fifo: {
    text: "FIFO, as in Amazon SQS: each group in strict order, duplicates stored once",
    properties: { retry: 2147483647, max_age: 345600, group_mode: "ordered", group_max_in_flight: 10, key_window: 300, key_scope: "queue" },
    annotations: { "sqs.kind": "fifo" },
  },
  fair: { text: "Fair: groups, such as tenants, take turns", properties: { group_mode: "fair" } },
};
const FIFO_NAME = /^[A-Za-z0-9_-]{1,75}\.fifo$/;

/** Return the properties of the form; throw RangeError for a name that clients of SQS cannot use. */
function propertiesOf({ name, kind, timeout }) {
  if (kind === "fifo" && name && !FIFO_NAME.test(name)) throw new RangeError("The name of a FIFO queue has up to 75 letters, digits, hyphens and underscores, and ends with .fifo.");
  return { timeout: Number(timeout || 30), ...KINDS[kind].properties };
}

export async function newQueue() {
  const name = field("name", "Name", h("input", { required: true, autocomplete: "off", spellcheck: "false", maxlength: "255" }), "1 to 255 bytes; that of a FIFO queue ends with .fifo.");
  const kind = field("kind", "Kind", h("select", {}, Object.entries(KINDS).map(([value, { text }]) => h("option", { value }, text))), "All properties can be changed later.");
  const timeout = field("timeout", "Lease in seconds: a message without an answer is redelivered after it", h("input", { type: "number", min: "0", step: "any", value: "30" }));
  let segment = "";
  const done = await ask({
    title: "New queue",
    text: ["The first message or the first property creates a queue. This sets its properties."],
    fields: [name, kind, timeout],
    verb: "Create",
    command(values) {
      const annotations = Object.entries(KINDS[values.kind].annotations ?? {}).flatMap(([key, text]) => ["--annotate", quoted(`${key}=${text}`)]);
      return commandLine("queue set", [quoted(values.name)], ["--create", ...wordsOf(propertiesOf(values)), ...annotations]);
    },
    run: async (values) => {
      segment = segmentOf(values.name);
      const { annotations } = KINDS[values.kind];
      await change("PATCH", `/v1/queues/${segment}/properties`, { ...propertiesOf(values), ...(annotations ? { annotations } : {}) });
      return "The queue is created.";
    },
  });
  if (done) location.hash = `#/queue/${segment}`;
}

function wordsOf({ timeout, retry, ...rest }) {
  return ["--timeout", quoted(String(timeout)), ...(retry === undefined ? [] : ["--retry", String(retry)]), ...Object.entries(rest).flatMap(([name, value]) => optionWords(name, value))];
}
