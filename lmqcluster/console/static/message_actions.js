// Actions on one message of a queue.
//
// A dead letter is named by its sequence, a leased message by the id of its delivery. Other messages can only be copied,
// because a consumer may get them at any moment.

import { actionButton, ask, commandLine, field } from "./actions.js";
import { change } from "./api.js";
import { attributeWords } from "./attributes.js";
import { announce, h } from "./dom.js";
import { queueWord, quoted } from "./names.js";

/** Create the buttons; `text` is the readable body, null if it is binary. */
export function messageActions(page, message, text, reload) {
  const isLeased = message.id !== null;
  const isDead = !isLeased && message.origin !== undefined;
  const buttons = [];
  if (text !== null) buttons.push(h("button", { type: "button", class: "small", onclick: () => copyBody(text) }, "Copy the body"));
  // Only a complete body can be stored again.
  if (!message.truncated && !Array.isArray(message.content)) buttons.push(actionButton("Push a copy", "write", () => pushCopy(page, message), { kind: "small" }));
  if (isDead) {
    buttons.push(
      actionButton("Redrive", "admin", () => redriveOne(page, message, reload), { kind: "small" }),
      actionButton("Delete", "admin", () => deleteOne(page, message, reload), { kind: "small danger" }),
    );
  }
  if (isLeased) {
    buttons.push(
      actionButton("Return", "write", () => settle(page, message, reload, "nack"), { kind: "small" }),
      actionButton("Delete", "write", () => settle(page, message, reload, "ack"), { kind: "small danger" }),
    );
  }
  const note = isLeased || isDead ? null : h("span", { class: "muted" }, "Consumers may get this message at any moment, so it cannot be changed alone.");
  return h("div", { class: "bar", role: "group", "aria-label": `Message ${message.sequence}` }, buttons, note);
}

async function copyBody(text) {
  await navigator.clipboard.writeText(text);
  announce("The body is copied.");
}

/** Return the command that pushes a copy; the shell decodes a binary body. */
function pushCommand(queue, { content, content_type: type, attributes }) {
  const options = ["--content-type", quoted(type), ...attributeWords(attributes)];
  if (typeof content === "string") return commandLine("message push", [queue, quoted(content)], options);
  return `echo ${content.base64} | base64 --decode | ${commandLine("message push", [queue], options)}`;
}

async function pushCopy(page, message) {
  const to = field("to", "To queue", h("input", { required: true, autocomplete: "off", spellcheck: "false", maxlength: "255" }), "Created if it does not exist.");
  await ask({
    title: `Push a copy of message ${message.sequence}`,
    text: [`The body, the content type and the attributes are stored as a new message. The message itself stays in ${page.name}.`],
    fields: [to],
    verb: "Push",
    command: (values) => pushCommand(values.to ? quoted(values.to) : "QUEUE", message),
    run: async (values) => {
      const copy = { content: message.content, content_type: message.content_type, attributes: message.attributes };
      await change("POST", `/v1/queues/${encodeURIComponent(values.to)}/messages`, { messages: [copy] });
      return `A copy is stored in ${values.to}.`;
    },
  });
}

async function redriveOne(page, { sequence }, reload) {
  const to = field("to", "To queue", h("input", { autocomplete: "off", spellcheck: "false", maxlength: "255" }), "Empty: the queue that it came from.");
  const done = await ask({
    title: `Redrive message ${sequence}`,
    text: [`It leaves ${page.name} and arrives as a new message at the end of the other queue.`],
    fields: [to],
    verb: "Redrive",
    command: (values) => commandLine("queue redrive", [queueWord(page.segment)], ["--sequence", String(sequence), ...(values.to ? ["--to", quoted(values.to)] : []), "--yes"]),
    run: async (values) => {
      const { redriven } = await change("POST", `${page.api}/redrive`, { sequences: [sequence], ...(values.to ? { to: values.to } : {}) });
      return redriven ? "The message is sent back." : gone(page);
    },
  });
  if (done) await reload();
}

async function deleteOne(page, { sequence }, reload) {
  const done = await ask({
    title: `Delete message ${sequence}`,
    text: [`This removes the message from ${page.name}. It cannot be undone.`],
    verb: "Delete",
    danger: true,
    command: () => commandLine("queue purge", [queueWord(page.segment)], ["--sequence", String(sequence), "--yes"]),
    run: async () => {
      const { purged } = await change("POST", `${page.api}/purge`, { sequences: [sequence] });
      return purged ? "The message is deleted." : gone(page);
    },
  });
  if (done) await reload();
}

// How a leased message is settled in place of its consumer.
const SETTLING = {
  ack: ["Delete", "The message is removed, as if its consumer had acknowledged it. It cannot be undone.", "deleted"],
  nack: ["Return", "The lease ends, and the message goes to the end of the queue for another delivery.", "returned"],
};

async function settle(page, { sequence, id }, reload, verb) {
  const [label, effect, past] = SETTLING[verb];
  const done = await ask({
    title: `${label} message ${sequence}`,
    text: [`${effect} A consumer that still works on it notices when it settles the message.`],
    verb: label,
    danger: verb === "ack",
    command: () => commandLine(`message ${verb}`, [queueWord(page.segment), quoted(id)]),
    run: async () => {
      const { results } = await change("POST", `${page.api}/${verb}`, { ids: [id] });
      return results[0] ? `The message is ${past}.` : gone(page);
    },
  });
  if (done) await reload();
}

function gone(page) {
  return `The message is no longer in this state in ${page.name}. Nothing has changed.`;
}
