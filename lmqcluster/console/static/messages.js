// The messages of a queue. Viewing does not change them.

import { commandBox, commandLine } from "./actions.js";
import { get } from "./api.js";
import { columnChoice } from "./columns.js";
import { preview, readable, viewer } from "./content.js";
import { h, setText, table } from "./dom.js";
import { jsonLines, save } from "./export.js";
import { bytes, count, duration } from "./format.js";
import { queueWord, segmentOf, textOf } from "./names.js";

const PAGE = 20;
const EXPORTED_AT_ONCE = 500;
const EXPORTED_MAX = 10_000;
const EXPORTED_BYTES_MAX = 64 * 1024 * 1024;
const CONTENT_BYTES_MAX = 1024 * 1024;
const COLUMNS = [{ label: "Sequence", title: "Number of the message in the cluster, the same for each delivery" }, { label: "State" }, { label: "Due for", numeric: true, title: "Time since it became ready, or since it was given back" }, { label: "Deliveries left", numeric: true }, { label: "Type" }, { label: "Attributes", title: "Priority, group, label and origin" }, { label: "Size", numeric: true }, { label: "Content" }];

/** Create the section of the queue's page; `reload()` loads the first messages again. */
export function messagesSection(page) {
  const summary = h("p", { class: "muted", "aria-live": "polite" }, "Loading.");
  const grid = table("Messages", COLUMNS);
  const more = h("button", { type: "button", class: "after", hidden: true, onclick: () => load(true) }, "Show more");
  const choice = columnChoice("messages", COLUMNS, grid);
  const line = commandBox(commandLine("message peek", [queueWord(page.segment)], ["--max", String(PAGE)]));
  let next = null;
  let shown = 0;
  grid.element.hidden = true;

  async function load(further = false) {
    try {
      const after = further && next !== null ? `&after=${encodeURIComponent(next)}` : "";
      show(await get(`${page.api}/messages?limit=${PAGE}${after}`), further);
    } catch (error) {
      if (error.status === undefined) throw error;
      setText(summary, error.message);
    }
  }

  function show(answer, further) {
    if (!further) {
      grid.body.replaceChildren();
      shown = 0;
    }
    grid.body.append(...answer.messages.flatMap(rows));
    shown += answer.messages.length;
    next = answer.next ?? null;
    more.hidden = next === null;
    grid.element.hidden = shown === 0;
    const some = next === null ? "All" : "The first";
    setText(summary, shown === 0 ? "No messages." : shown === 1 && next === null ? "One message." : `${some} ${count(shown)}, in the order of their pushes.`);
  }

  /** Export all messages with their contents. The messages stay in the queue. */
  async function exportAll() {
    const lines = [];
    let size = 0;
    let after = 0;
    try {
      while (after !== null && lines.length < EXPORTED_MAX && size < EXPORTED_BYTES_MAX) {
        const answer = await get(`${page.api}/messages?limit=${EXPORTED_AT_ONCE}&bytes=${CONTENT_BYTES_MAX}&after=${after}`);
        lines.push(...answer.messages);
        size += answer.messages.reduce((sum, message) => sum + message.size, 0);
        after = answer.next;
      }
    } catch (error) {
      if (error.status === undefined) throw error;
      setText(summary, error.message);
      return;
    }
    save("messages.jsonl", "application/jsonl", jsonLines(lines));
    const cut = lines.filter((message) => message.truncated).length;
    setText(summary, `${count(lines.length)} messages are in the file${after === null ? "" : ", the first of the queue"}${cut ? `; ${count(cut)} of them are cut after the first MiB` : ""}.`);
  }

  return {
    reload: () => load(),
    element: h(
      "section",
      {},
      h("h2", {}, "Messages"),
      h("div", { class: "bar" }, h("button", { type: "button", onclick: () => load() }, "Reload"), h("button", { type: "button", onclick: exportAll }, "Export"), choice.element, summary),
      grid.element,
      more,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), line),
    ),
  };
}

/** Create the row of a message and a row with its content, which opens on demand. */
function rows(message) {
  const parts = Array.isArray(message.content) ? message.content : [message];
  const bodies = parts.map((part) => readable(part, { cut: message.truncated }));
  const details = h("td", { colspan: COLUMNS.length });
  const below = h("tr", { class: "details", hidden: true }, details);
  const toggle = h("button", { type: "button", class: "sort", "aria-expanded": "false", onclick: open }, String(message.sequence));

  function open() {
    below.hidden = !below.hidden;
    toggle.setAttribute("aria-expanded", String(!below.hidden));
    if (details.hasChildNodes()) return;
    parts.forEach((part, place) => {
      if (parts.length > 1) details.append(h("p", { class: "muted" }, `Part ${place + 1} of ${parts.length}, ${part.content_type}`));
      details.append(viewer(bodies[place], { truncated: message.truncated }));
    });
  }

  const cells = [
    message.due_in_s > 0 ? `${message.state}, ${message.state === "leased" ? "ends" : "due"} in ${duration(message.due_in_s)}` : message.state,
    ["ready", "leased"].includes(message.state) ? duration(message.age_s) : "–",
    count(message.deliveries_left),
    message.content_type,
    attributesOf(message),
    bytes(message.size),
    bodies.map(({ body }) => preview(body)).join(" | "),
  ];
  const above = h(
    "tr",
    {},
    h("th", { scope: "row" }, toggle),
    cells.map((text, place) => h("td", { class: COLUMNS[place + 1].numeric ? "number" : place === cells.length - 1 ? "preview" : undefined }, text)),
  );
  return [above, below];
}

/** Return the attributes of a message and its origin, as text. */
function attributesOf({ priority, group, label, origin }) {
  const texts = [priority && `priority ${priority}`, group && `group ${textOf(segmentOf(group))}`, label && `label ${textOf(segmentOf(label))}`];
  if (origin) texts.push(`${origin.reason} in ${textOf(segmentOf(origin.queue))} after ${origin.deliveries === 1 ? "1 delivery" : `${count(origin.deliveries)} deliveries`}`);
  return texts.filter(Boolean).join(", ");
}
