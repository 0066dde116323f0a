// Dead letters: where messages wait that the cluster gave up or that became too old, and which queues they come from.

import { actionButton, commandBox, commandLine, readOnlyNote } from "./actions.js";
import { get } from "./api.js";
import { h, setText, textRow, wrapping } from "./dom.js";
import { count, duration } from "./format.js";
import { list } from "./list.js";
import { segmentOf, textOf } from "./names.js";
import { redriveMessages } from "./queue_actions.js";

export const label = "Dead letters";

const ROWS = 100;
const PERIOD_MS = 3000;
const HERE = [
  { label: "Queue" },
  { label: "Dead letters", numeric: true, title: "Messages that the cluster has put here and nobody holds" },
  { label: "Leased", numeric: true, title: "Of all messages of the queue" },
  { label: "All", numeric: true, title: "Messages of the queue, those of clients included" },
  { label: "Oldest", numeric: true, title: "For how long the first message has been ready" },
  { label: "Change" },
];
const FROM = [
  { label: "Queue" },
  { label: "Dead-lettered", numeric: true, title: "Messages that went to the dead-letter queue after their last delivery" },
  { label: "Expired", numeric: true, title: "Messages whose time was over before they were delivered" },
  { label: "Dropped", numeric: true, title: "Messages that were lost after their last delivery, for want of a dead-letter queue" },
];

export function open() {
  const here = list("Queues with dead letters", HERE, "There are no dead letters.");
  const from = list("Queues that gave messages up", FROM, "No queue has given up a message.");
  const complaint = h("p", { class: "complaint", role: "alert" });

  async function refresh() {
    const found = await get(`/v1/queues?state=dead_letters&sort=dead_letters&limit=${ROWS}`);
    here.show(found.queues, found.total, (queue) => segmentOf(queue.name), (queue) => hereRow(queue, refresh));
    const sources = new Map();
    // Those that have most of each; a queue may be among several.
    for (const sort of ["dead_lettered", "dropped"]) {
      const { queues } = await get(`/v1/queues?sort=${sort}&order=desc&limit=${ROWS}`);
      for (const queue of queues) if (queue.dead_lettered_total + queue.expired_total + queue.dropped_total > 0) sources.set(segmentOf(queue.name), queue);
    }
    from.show([...sources.values()], sources.size, (queue) => segmentOf(queue.name), ({ name }) => {
      const segment = segmentOf(name);
      return textRow(FROM, (queue) => ["", count(queue.dead_lettered_total), count(queue.expired_total), count(queue.dropped_total)], h("a", { href: `#/queue/${segment}` }, wrapping(textOf(segment))));
    });
  }

  return {
    title: "Dead letters",
    element: [
      h("h1", {}, "Dead letters"),
      readOnlyNote("admin"),
      complaint,
      h("p", { class: "muted" }, "A queue with the property dead_letter_queue passes a message on after its last delivery; one with expire_to_queue passes on those that have become too old. Redrive sends them back."),
      here.element,
      from.element,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("queue ls", [], ["--state", "dead_letters"]))),
    ].filter(Boolean),
    period: PERIOD_MS,
    refresh,
    complain: (error) => setText(complaint, error ? error.message : ""),
  };
}

function hereRow({ name: given }, refresh) {
  const segment = segmentOf(given);
  const name = textOf(segment);
  // What the dialogs of a queue's page need of it.
  const page = { segment, name, api: `/v1/queues/${segment}`, queue: null, refresh };
  const button = actionButton("Redrive", "admin", () => redriveMessages(page, refresh), { kind: "small" });
  button.setAttribute("aria-label", `Redrive: ${name}`);
  const link = h("a", { href: `#/queue/${segment}` }, wrapping(name));
  const row = textRow(HERE.slice(0, -1), (queue) => ["", count(queue.dead_letters), count(queue.leased), count(queue.size), duration(queue.oldest_age_s)], link);
  row.element.append(h("td", {}, button));
  return row;
}
