// Actions on a queue. Destructive ones state the amount of data that they destroy.

import { ask, commandLine, field } from "./actions.js";
import { change, get } from "./api.js";
import { attributeOptions, attributesField, attributesOf } from "./attributes.js";
import { h } from "./dom.js";
import { bytes, plural } from "./format.js";
import { queueWord, quoted } from "./names.js";

/** Load the current state of the queue. */
async function fresh(page) {
  page.queue = await get(page.api);
  return page.queue;
}

export async function pushMessage(page, reload) {
  const content = field("content", "Content", h("textarea", { rows: "6", spellcheck: "false" }));
  const type = field("type", "Content type", h("input", { value: "text/plain; charset=utf-8", list: "content-types", autocomplete: "off" }));
  const types = h("datalist", { id: "content-types" }, ["text/plain; charset=utf-8", "application/json", "application/octet-stream"].map((one) => h("option", { value: one })));
  const key = field("key", "Idempotency key", h("input", { autocomplete: "off", spellcheck: "false", maxlength: "255" }), "Optional. A second push with the same key within five minutes stores nothing.");
  const attributes = attributesField();
  const done = await ask({
    title: `Push to ${page.name}`,
    text: [types],
    fields: [content, type, attributes, key],
    verb: "Push",
    command: (values) => {
      const options = values.type ? ["--content-type", quoted(values.type)] : [];
      options.push(...attributeOptions(values.attributes));
      if (values.key) options.push("--key", quoted(values.key));
      return commandLine("message push", [queueWord(page.segment), quoted(values.content)], options);
    },
    run: async (values) => {
      const message = { content: values.content, attributes: attributesOf(values.attributes) };
      if (values.type) message.content_type = values.type;
      if (values.key) message.key = values.key;
      await change("POST", `${page.api}/messages`, { messages: [message] });
      return "The message is stored.";
    },
  });
  if (done) await reload();
}

export async function suspendQueue(page) {
  const verb = page.queue?.suspended ? "resume" : "suspend";
  const text = verb === "suspend"
    ? "Pulls find nothing and wait, on every node. Pushes, acknowledgements and lease expiry continue."
    : "Pulls get messages again; waiting pulls get them at once.";
  const done = await ask({
    title: `${verb === "suspend" ? "Suspend" : "Resume"} ${page.name}`,
    text: [text],
    verb: verb === "suspend" ? "Suspend" : "Resume",
    command: () => commandLine(`queue ${verb}`, [queueWord(page.segment)]),
    run: async () => {
      await change("POST", `${page.api}/${verb}`);
      return `The queue is ${verb === "suspend" ? "suspended" : "resumed"}.`;
    },
  });
  if (done) await page.refresh();
}

export async function moveMessages(page, reload) {
  const queue = await fresh(page);
  const to = field("to", "To queue", h("input", { required: true, autocomplete: "off", spellcheck: "false", maxlength: "255" }), "Created if it does not exist.");
  const most = field("max", "At most", h("input", { type: "number", min: "1", step: "1" }), "Empty: all ready messages.");
  const done = await ask({
    title: `Move messages from ${page.name}`,
    text: [`${plural(queue.ready, "message")} can be moved now. They go to the end of the other queue as new messages. Leased and delayed messages stay.`],
    fields: [to, most],
    verb: "Move",
    command: (values) => {
      const operands = [queueWord(page.segment), values.to ? quoted(values.to) : "QUEUE"];
      return commandLine("queue move", operands, values.max ? ["--max", quoted(values.max)] : []);
    },
    run: async (values) => {
      const body = { to: values.to };
      if (values.max) body.max = Number(values.max);
      const { moved } = await change("POST", `${page.api}/move`, body);
      return `${plural(moved, "message")} moved.`;
    },
  });
  if (done) await reload();
}

export async function redriveMessages(page, reload) {
  const queue = await fresh(page);
  const to = field("to", "To queue", h("input", { autocomplete: "off", spellcheck: "false", maxlength: "255" }), "Empty: each message returns to the queue that it came from.");
  const label = field("label", "Label", h("input", { autocomplete: "off", spellcheck: "false", maxlength: "255" }), "Empty: any label.");
  const most = field("max", "At most", h("input", { type: "number", min: "1", step: "1" }), "Empty: all.");
  const done = await ask({
    title: `Redrive ${page.name}`,
    text: [`Dead letters and expired messages that the cluster moved here are sent back as new messages. ${plural(queue.ready + queue.delayed, "waiting message")} in this queue; messages that clients pushed stay.`],
    fields: [to, label, most],
    verb: "Redrive",
    command: (values) => commandLine("queue redrive", [queueWord(page.segment)], Object.entries(given(values)).flatMap(([name, value]) => [`--${name}`, quoted(String(value))])),
    run: async (values) => {
      const { redriven } = await change("POST", `${page.api}/redrive`, given(values));
      return `${plural(redriven, "message")} sent back.`;
    },
  });
  if (done) await reload();
}

function given({ to, label, max }) {
  return { ...(to ? { to } : {}), ...(label ? { label } : {}), ...(max ? { max: Number(max) } : {}) };
}

export async function startMoveTask(page, reload) {
  const queue = await fresh(page);
  const to = field("to", "To queue", h("input", { autocomplete: "off", spellcheck: "false", maxlength: "255" }), "Empty: each message returns to the queue that it came from.");
  const most = field("rate", "Messages per second, at most", h("input", { type: "number", min: "1", max: "10000", step: "1" }), "Empty: no limit.");
  const given = ({ to, rate }) => ({ ...(to ? { to } : {}), ...(rate ? { rate: Number(rate) } : {}) });
  const done = await ask({
    title: `Start a move task of ${page.name}`,
    text: [`The cluster sends messages back without further requests: ${plural(queue.ready + queue.delayed, "waiting message")} in this queue. Messages that clients pushed stay, unless a queue is named, which must exist.`],
    fields: [to, most],
    verb: "Start",
    command: (values) => commandLine("queue redrive", [queueWord(page.segment)], ["--background", ...Object.entries(given(values)).flatMap(([name, value]) => [`--${name}`, quoted(String(value))])]),
    run: async (values) => {
      const { number } = await change("POST", `${page.api}/move-tasks`, given(values));
      return `Task ${number} is started.`;
    },
  });
  if (done) await reload();
}

export async function cancelMoveTask(page, number, reload) {
  const done = await ask({
    title: `Cancel task ${number} of ${page.name}`,
    text: ["Messages that it has moved stay where they are."],
    verb: "Cancel task",
    command: () => commandLine("queue redrive", [queueWord(page.segment)], ["--cancel", String(number)]),
    run: async () => {
      const { moved } = await change("DELETE", `${page.api}/move-tasks/${number}`);
      return `${plural(moved, "message")} moved.`;
    },
  });
  if (done) await reload();
}

export async function purgeQueue(page, reload) {
  const queue = await fresh(page);
  const done = await ask({
    title: `Purge ${page.name}`,
    text: [`This removes ${plural(queue.ready + queue.delayed, "message")} that wait (${bytes(queue.bytes)} in the queue). ${plural(queue.leased, "message")} under lease stay. It cannot be undone.`],
    verb: "Purge",
    danger: true,
    command: () => commandLine("queue purge", [queueWord(page.segment)]),
    run: async () => {
      const { purged } = await change("POST", `${page.api}/purge`);
      return `${plural(purged, "message")} purged.`;
    },
  });
  if (done) await reload();
}

export async function deleteQueue(page) {
  const queue = await fresh(page);
  const done = await ask({
    title: `Delete ${page.name}`,
    text: [`This deletes the queue with ${plural(queue.size, "message")} (${bytes(queue.bytes)}), ${queue.leased} of them under lease, and its own properties. It cannot be undone. A push creates the queue again.`],
    verb: "Delete",
    danger: true,
    typed: queue.size > 0 ? page.name : "",
    command: () => commandLine("queue rm", [queueWord(page.segment)]),
    run: async () => {
      page.isGone = true;
      try {
        await page.looking.catch(() => {});
        await change("DELETE", page.api);
      } catch (error) {
        page.isGone = false;
        throw error;
      }
      return "The queue is deleted.";
    },
  });
  if (done) location.hash = "#/queues";
}
