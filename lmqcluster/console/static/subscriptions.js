// Subscriptions: consumers with batch leases, such as Spark.

import { actionButton, ask, commandBox, commandLine, readOnlyNote } from "./actions.js";
import { change, get } from "./api.js";
import { answered, asking } from "./asking.js";
import { h, setText, syncRows, table, textRow } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { queueWord, segmentOf, textOf } from "./names.js";

export const label = "Subscriptions";

const SHOWN_MAX = 500;
const COLUMNS = [
  { label: "Subscription" },
  { label: "Token", title: "Owner" },
  { label: "Settled up to epoch", numeric: true, title: "The last settled epoch" },
  { label: "Open batches", numeric: true },
  { label: "Messages leased", numeric: true },
  { label: "First lease ends in", numeric: true },
  { label: "Change" },
];

export function open() {
  const grid = table("Subscriptions", COLUMNS);
  const summary = asking();
  const complaint = h("p", { class: "complaint", role: "alert" });
  grid.element.hidden = true;

  async function refresh() {
    const { subscriptions } = await get("/v1/subscriptions");
    grid.element.hidden = subscriptions.length === 0;
    const shown = subscriptions.slice(0, SHOWN_MAX);
    const cut = shown.length < subscriptions.length ? ` The first ${count(shown.length)} are shown.` : "";
    answered(summary, subscriptions.length === 0 ? "There are no subscriptions. A consumer creates one when it leases a batch." : `${plural(subscriptions.length, "subscription")}.${cut}`);
    syncRows(grid.body, shown, (one) => segmentOf(one.name), (one) => subscriptionRow(segmentOf(one.name), refresh));
  }

  return {
    title: "Subscriptions",
    element: [
      h("h1", {}, "Subscriptions"),
      readOnlyNote("write"),
      complaint,
      summary,
      grid.element,
      h("div", { class: "same" }, h("span", { class: "muted" }, "The same by command:"), commandBox(commandLine("subscription ls"))),
    ].filter(Boolean),
    period: 3000,
    refresh,
    complain: (error) => setText(complaint, error ? error.message : ""),
  };
}

function subscriptionRow(segment, refresh) {
  const name = textOf(segment);
  const buttons = [
    actionButton("Give back", "write", () => giveBack(segment, name, refresh), { kind: "small" }),
    actionButton("Delete", "write", () => remove(segment, name, refresh), { kind: "small danger" }),
  ];
  for (const button of buttons) button.setAttribute("aria-label", `${button.textContent}: ${name}`);
  const row = textRow(COLUMNS.slice(0, -1), (one) => {
    const live = one.batches.filter((batch) => batch.state === "live");
    const messages = live.reduce((sum, batch) => sum + batch.count, 0);
    const first = live.length ? Math.min(...live.map((batch) => batch.expires_in_s)) : null;
    return [name, textOf(segmentOf(one.owner)) || "–", count(one.settled), count(live.length), count(messages), duration(first)];
  });
  row.element.append(h("td", {}, h("div", { class: "row" }, buttons)));
  return row;
}

async function giveBack(segment, name, refresh) {
  const done = await ask({
    title: `Give back what ${name} holds`,
    text: ["The messages of all its batches return to their places in their queues, and no delivery is counted. A consumer that is still working on them gets them again."],
    verb: "Give back",
    danger: true,
    command: () => commandLine("subscription abandon", [queueWord(segment)]),
    run: async () => {
      await change("POST", `/v1/subscriptions/${segment}/abandon`, {});
      return "The messages are back in their queues.";
    },
  });
  if (done) await refresh();
}

async function remove(segment, name, refresh) {
  const done = await ask({
    title: `Delete subscription ${name}`,
    text: ["Its messages are given back and its settled epochs are forgotten: a consumer that uses it again starts over."],
    verb: "Delete",
    danger: true,
    typed: name,
    command: () => commandLine("subscription rm", [queueWord(segment)]),
    run: async () => {
      await change("DELETE", `/v1/subscriptions/${segment}`);
      return `Subscription ${name} is deleted.`;
    },
  });
  if (done) await refresh();
}
