// A look at the messages of a queue, which leaves them where they are.

import { commandBox, commandLine } from "./actions.js";
import { get } from "./api.js";
import { preview, readable, viewer } from "./content.js";
import { h, setText, table } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { queueWord } from "./names.js";

const PAGE = 20;
const COLUMNS = [{ label: "Number" }, { label: "State" }, { label: "Age", numeric: true }, { label: "Deliveries left", numeric: true }, { label: "Type" }, { label: "Size", numeric: true }, { label: "Content" }];

/** The section of the queue's page; `reload()` looks again from the beginning. */
export function messagesSection(page) {
  const summary = h("p", { class: "muted", "aria-live": "polite" }, "Loading.");
  const grid = table("Messages", COLUMNS);
  const more = h("button", { type: "button", class: "after", hidden: true, onclick: () => load(true) }, "Show more");
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
    setText(summary, shown === 0 ? "No messages." : `${next === null ? "All" : "The first"} ${count(shown)}, in the order in which they were pushed.`);
  }

  return {
    reload: () => load(),
    element: h(
      "section",
      {},
      h("h2", {}, "Messages"),
      h("div", { class: "bar" }, h("button", { type: "button", onclick: () => load() }, "Look again"), summary),
      grid.element,
      more,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), line),
    ),
  };
}

/** A message's row, and below it a row with its content that opens on demand. */
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
    message.due_in_s > 0 ? `${message.state}, due in ${duration(message.due_in_s)}` : message.state,
    duration(message.age_s),
    count(message.deliveries_left),
    message.content_type,
    bytes(message.size),
    bodies.map(({ body }) => preview(body)).join(" | "),
  ];
  const above = h(
    "tr",
    {},
    h("th", { scope: "row" }, toggle),
    cells.map((text, place) => h("td", { class: COLUMNS[place + 1].numeric ? "number" : place === 5 ? "preview" : undefined }, text)),
  );
  return [above, below];
}
