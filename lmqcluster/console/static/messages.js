// The messages of a queue. Viewing does not change them.

import { commandBox, commandLine, field } from "./actions.js";
import { get } from "./api.js";
import { answered, asking } from "./asking.js";
import { attributesLine, attributesTable } from "./attributes.js";
import { columnChoice } from "./columns.js";
import { preview, readable, textOf as textOfBody, viewer } from "./content.js";
import { debounce, h, setText, table } from "./dom.js";
import { jsonLines, save } from "./export.js";
import { age, bytes, count, duration } from "./format.js";
import { messageActions } from "./message_actions.js";
import { queueWord, quoted, segmentOf, textOf } from "./names.js";

const PAGE = 20;
const EXPORTED_AT_ONCE = 500;
const EXPORTED_MAX = 10_000;
const EXPORTED_BYTES_MAX = 64 * 1024 * 1024;
/** Most bytes of a body that the node returns. */
export const CONTENT_BYTES_MAX = 1024 * 1024;
const SEARCH_DELAY_MS = 300;
/** The attribute with the reason that the consumer gave for its last nack. */
export const REASON = "lmq.reason";
// The cluster's reasons to move a message, in words.
const MOVED = { exhausted: "no deliveries left", expired: "expired" };
// Pages without a match that one search reads; the node compares at most 10,000 messages for each.
const EMPTY_PAGES_MAX = 10;
const COLUMNS = [{ label: "Sequence", title: "Number of the message in the cluster, the same for each delivery" }, { label: "State" }, { label: "Due for", numeric: true, title: "Time since it became ready, or since it was given back" }, { label: "Deliveries left", numeric: true }, { label: "Type" }, { label: "Options", title: "Priority, group and label" }, { label: "Failure", title: "Why the message is a dead letter, and the reason that its consumer gave" }, { label: "Attributes" }, { label: "Size", numeric: true }, { label: "Content" }];

/** Create the section of the queue's page; `reload()` loads the first messages again. */
export function messagesSection(page) {
  const summary = asking();
  const grid = table("Messages", COLUMNS);
  const more = h("button", { type: "button", class: "after", hidden: true, onclick: () => load(true) }, "Show more");
  const choice = columnChoice("messages", COLUMNS, grid);
  const line = commandBox("");
  const search = field("attribute", "Attribute", h("input", { type: "search", placeholder: "name=value", autocomplete: "off", spellcheck: "false" }));
  let next = null;
  let shown = 0;
  let turn = 0;
  grid.element.hidden = true;
  search.control.addEventListener("input", debounce(() => load(), SEARCH_DELAY_MS));

  /** Return the wanted attribute, empty for any. */
  const wanted = () => search.read().trim();

  function query(limit, after) {
    const attribute = wanted() ? `&attribute=${encodeURIComponent(wanted())}` : "";
    return `${page.api}/messages?limit=${limit}&after=${encodeURIComponent(after)}${attribute}`;
  }

  async function load(further = false) {
    const mine = (turn += 1);
    setText(line.querySelector("code"), commandLine("message peek", [queueWord(page.segment)], ["--max", String(PAGE), ...(wanted() ? ["--attribute", quoted(wanted())] : [])]));
    try {
      let answer = await get(query(PAGE, (further && next) || 0));
      for (let read = 1; answer.messages.length === 0 && answer.next !== null && read < EMPTY_PAGES_MAX; read += 1) {
        if (mine !== turn) return;
        answer = await get(query(PAGE, answer.next));
      }
      if (mine === turn) show(answer, further);
    } catch (error) {
      if (error.status === undefined) throw error;
      if (mine === turn) answered(summary, error.message);
    }
  }

  function show(answer, further) {
    if (!further) {
      grid.body.replaceChildren();
      shown = 0;
    }
    grid.body.append(...answer.messages.flatMap((message) => rows(page, { ...message, stale: answer.stale }, () => load())));
    shown += answer.messages.length;
    next = answer.next ?? null;
    more.hidden = next === null;
    grid.element.hidden = shown === 0;
    const some = next === null ? "All" : "The first";
    const none = next === null ? "No messages." : "No messages so far.";
    answered(summary, shown === 0 ? none : shown === 1 && next === null ? "One message. Its number opens it, with its actions." : `${some} ${count(shown)}, in the order of their pushes. A number opens its message, with its actions.`);
  }

  /** Export all messages with their contents. The messages stay in the queue. */
  async function exportAll() {
    const lines = [];
    let size = 0;
    let after = 0;
    try {
      while (after !== null && lines.length < EXPORTED_MAX && size < EXPORTED_BYTES_MAX) {
        const answer = await get(`${query(EXPORTED_AT_ONCE, after)}&bytes=${CONTENT_BYTES_MAX}`);
        lines.push(...answer.messages);
        size += answer.messages.reduce((sum, message) => sum + message.size, 0);
        after = answer.next;
      }
    } catch (error) {
      if (error.status === undefined) throw error;
      answered(summary, error.message);
      return;
    }
    save("messages.jsonl", "application/jsonl", jsonLines(lines));
    const cut = lines.filter((message) => message.truncated).length;
    answered(summary, `${count(lines.length)} messages are in the file${after === null ? "" : ", the first of the queue"}${cut ? `; ${count(cut)} of them are cut after the first MiB` : ""}.`);
  }

  return {
    reload: () => load(),
    element: h(
      "section",
      {},
      h("h2", {}, "Messages"),
      h("div", { class: "bar" }, search.element, h("button", { type: "button", onclick: () => load() }, "Reload"), h("button", { type: "button", onclick: exportAll }, "Export"), choice.element, summary),
      grid.element,
      more,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), line),
    ),
  };
}

/** Return the parts of a compound message; others have one. */
function partsOf(message) {
  return Array.isArray(message.content) ? message.content : [message];
}

function bodiesOf(message) {
  return partsOf(message).map((part) => readable(part, { cut: message.truncated }));
}

/** Create the actions of a message, and its body with its attributes. */
export function messageContents(page, message, reload) {
  const parts = partsOf(message);
  const bodies = bodiesOf(message);
  const text = parts.length > 1 || message.truncated ? null : textOfBody(bodies[0].body);
  const shown = parts.map((part, place) => [
    parts.length > 1 && h("p", { class: "muted" }, `Part ${place + 1} of ${parts.length}, ${part.content_type}`),
    attributesTable(part.attributes),
    viewer(bodies[place], { truncated: message.truncated }),
  ]);
  return [messageActions(page, message, text, reload), ...shown.flat().filter(Boolean)];
}

/** Create the row of a message and a row with its content, which opens on demand. */
function rows(page, message, reload) {
  const parts = partsOf(message);
  const details = h("td", { colspan: COLUMNS.length });
  const below = h("tr", { class: "details", hidden: true }, details);
  const toggle = h("button", { type: "button", class: "sort", "aria-expanded": "false", onclick: open }, String(message.sequence));

  function open() {
    below.hidden = !below.hidden;
    toggle.setAttribute("aria-expanded", String(!below.hidden));
    if (!details.hasChildNodes()) details.append(...messageContents(page, message, reload));
  }

  const cells = [
    stateText(message),
    ["ready", "leased"].includes(message.state) ? age(message.age_s, message.stale) : "–",
    count(message.deliveries_left),
    message.content_type,
    optionsOf(message),
    failureOf(message),
    parts.map((part) => attributesLine(withoutReason(part.attributes))).filter(Boolean).join(" | "),
    bytes(message.size),
    bodiesOf(message).map(({ body }) => preview(body)).join(" | "),
  ];
  const above = h(
    "tr",
    {},
    h("th", { scope: "row" }, toggle, " ", h("a", { href: `#/queue/${page.segment}/message/${message.sequence}`, "aria-label": `Page of message ${message.sequence}` }, "page")),
    cells.map((text, place) => h("td", { class: COLUMNS[place + 1].numeric ? "number" : place === cells.length - 1 ? "preview" : COLUMNS[place + 1].label === "Failure" ? "prose" : undefined }, text)),
  );
  return [above, below];
}

/** Return the state of a message with the end of its lease or its due time, as text. */
export function stateText({ state, due_in_s: due, stale }) {
  // Without a quorum the cluster's clock stops.
  return due > 0 ? `${state}, ${state === "leased" ? "ends" : "due"} in ${stale ? "≤ " : ""}${duration(due)}` : state;
}

/** Return the options of a message's push, as text. */
function optionsOf({ priority, group, label }) {
  return [priority && `priority ${priority}`, group && `group ${textOf(segmentOf(group))}`, label && `label ${textOf(segmentOf(label))}`].filter(Boolean).join(", ");
}

/** Return the cluster's reason to move a message, in words. */
export function reasonText({ reason }) {
  return MOVED[reason] ?? reason;
}

/** Return why a message was moved here, and the reason that its last consumer gave, as text. */
export function failureOf(message) {
  const { origin } = message;
  const reason = partsOf(message).map((part) => part.attributes[REASON]).find((one) => typeof one === "string");
  const moved = origin && `${reasonText(origin)} in ${textOf(segmentOf(origin.queue))} after ${origin.deliveries === 1 ? "1 delivery" : `${count(origin.deliveries)} deliveries`}`;
  return [moved, reason].filter(Boolean).join(": ");
}

function withoutReason({ [REASON]: _reason, ...others }) {
  return others;
}
