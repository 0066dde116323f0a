// The dialog that creates a queue: plain, FIFO or fair.

import { ask, commandLine, field } from "./actions.js";
import { change } from "./api.js";
import { h } from "./dom.js";
import { quoted, segmentOf } from "./names.js";

const KINDS = {
  plain: "Plain: messages in the order of their pushes",
  fifo: "FIFO, as in Amazon SQS: each group in strict order, duplicates stored once",
  fair: "Fair: groups, such as tenants, take turns",
};
const SCOPES = { queue: "in the whole queue", group: "in the group of the message" };
const FIFO_NAME = /^[A-Za-z0-9_-]{1,75}\.fifo$/;

/** Return the request that the form stands for; throw RangeError for a name that clients of SQS cannot use. */
function creation({ name, kind, timeout, scope, content }) {
  const properties = { timeout: Number(timeout || 30) };
  if (kind !== "fifo") return { kind, properties };
  if (name && !FIFO_NAME.test(name)) throw new RangeError("The name of a FIFO queue has up to 75 letters, digits, hyphens and underscores, and ends with .fifo.");
  return { kind, content_deduplication: content, properties: { ...properties, key_scope: scope } };
}

function commandOf(values) {
  const { kind, properties, content_deduplication } = creation(values);
  const words = [
    ...(kind === "plain" ? [] : [`--${kind}`]),
    ...(content_deduplication ? ["--content-deduplication"] : []),
    "--timeout", quoted(String(properties.timeout)),
    ...(properties.key_scope === "group" ? ["--key-scope", "group"] : []),
  ];
  return commandLine("queue create", [quoted(values.name)], words);
}

export async function newQueue() {
  const options = (texts) => Object.entries(texts).map(([value, text]) => h("option", { value }, text));
  const name = field("name", "Name", h("input", { required: true, autocomplete: "off", spellcheck: "false", maxlength: "255" }), "1 to 255 bytes; that of a FIFO queue ends with .fifo.");
  const kind = field("kind", "Kind", h("select", {}, options(KINDS)), "All properties can be changed later.");
  const timeout = field("timeout", "Lease in seconds: a message without an answer is redelivered after it", h("input", { type: "number", min: "0", step: "any", value: "30" }));
  const scope = field("scope", "A deduplication id counts", h("select", {}, options(SCOPES)));
  const content = field("content", "The hash of a body is the deduplication id of a message without one", h("input", { type: "checkbox" }));
  const ofFifo = [scope, content];
  const showThoseOfKind = () => ofFifo.forEach(({ element }) => (element.hidden = kind.read() !== "fifo"));
  kind.element.addEventListener("change", showThoseOfKind);
  showThoseOfKind();
  let segment = "";
  const done = await ask({
    title: "New queue",
    text: ["The first message or the first property also creates a queue, a plain one."],
    fields: [name, kind, timeout, ...ofFifo],
    verb: "Create",
    command: commandOf,
    run: async (values) => {
      segment = segmentOf(values.name);
      const { new: isNew } = await change("PUT", `/v1/queues/${segment}`, creation(values));
      if (!isNew) throw new RangeError("A queue of this name exists already. It was not changed.");
      return "The queue is created.";
    },
  });
  if (done) location.hash = `#/queue/${segment}`;
}
